"""Python objects that hold tensors → DLTensor. See docs/tensors.md."""
from cudnn_bindgen.runtime.dlpack cimport DLPackExchangeAPI, DLTensor
from cudnn_bindgen.runtime.tensor_checks cimport Given

cdef const DLPackExchangeAPI* exchange_api(object item) except? NULL
cdef Given read_exchanged(
    const DLPackExchangeAPI* api, object item, str argument, DLTensor* out, list owned
) except *
cdef Given read_other(object item, str argument, void* stream, DLTensor* out, list owned) except *
cdef void* current_stream(const DLPackExchangeAPI* api, const DLTensor* tensor) except? NULL
cdef void* stream_address(object stream) except? NULL
cdef object make_exchanged(
    const DLPackExchangeAPI* api, const DLTensor* prototype, str argument
)
