from libc.stdint cimport int64_t


cdef extern from "kernel_plan.hpp" namespace "cudnn_bindgen" nogil:
    # What a call launches, but for its addresses; immutable.
    cppclass KernelPlan:
        int64_t workspace_size

# `slots` by uid; `kernels` is a module_data.KernelPlan. Raises BindingError; needs no GPU.
cdef KernelPlan* lay_out_kernels(str module, dict slots, object kernels) except NULL
