from cudnn_bindgen.runtime.cudnn cimport CudnnApi
from cudnn_bindgen.runtime.driver cimport DriverApi

cdef const CudnnApi* cudnn_api() except NULL nogil
cdef const DriverApi* driver_api() except NULL nogil
cdef bint is_forked() noexcept nogil
