# cython: language_level=3, freethreading_compatible=True
"""From the status of a failed call to the exception that names it."""
from cudnn_bindgen.runtime.cudnn cimport CudnnApi
from cudnn_bindgen.runtime.driver cimport CUDA_SUCCESS, CUresult, DriverApi
from cudnn_bindgen.runtime.library cimport cudnn_api, driver_api

from cudnn_bindgen.runtime.errors import CudnnError, DriverError


cdef int check_driver(const char* call, CUresult status) except -1 nogil:
    """Raise DriverError unless `status` is success."""
    if status == CUDA_SUCCESS:
        return 0
    with gil:
        raise _driver_error(call, status)


cdef int raise_cudnn(const char* call, int status, void* owner) except -1 nogil:
    """Raise CudnnError for a status that is not success."""
    with gil:
        raise _cudnn_error(call, status, <object>owner if owner != NULL else ("", ""))


cdef object _driver_error(const char* call, CUresult status):
    cdef const char* name = NULL
    cdef const DriverApi* api = driver_api()
    if api.get_error_name(status, &name) != CUDA_SUCCESS or name == NULL:
        return DriverError(call.decode(), status, "unknown CUresult")
    return DriverError(call.decode(), status, name.decode())


cdef object _cudnn_error(const char* call, int status, tuple owner):
    cdef char detail[1024]
    cdef const CudnnApi* api = cudnn_api()
    detail[0] = 0
    api.get_last_error_string(detail, sizeof(detail))
    detail[sizeof(detail) - 1] = 0
    said = (<bytes>detail).decode(errors="replace").strip()
    return CudnnError(
        call.decode(), status, api.get_error_string(status).decode(), said, *owner)
