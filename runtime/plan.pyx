# cython: language_level=3, freethreading_compatible=True
"""One cuDNN execution plan: created from its text, launched, destroyed.

Failures are values here (`Failure`): a caller may hold a lock that must not wait for the GIL.
"""
from libc.stdint cimport int64_t

from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.library cimport (
    CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
    CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
    CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES, CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES,
    CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
    CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
    CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_STATUS_SUCCESS, CUDNN_TYPE_CHAR, CUDNN_TYPE_HANDLE,
    CUDNN_TYPE_INT64, CUDNN_TYPE_VOID_PTR, CUcontext, CudnnApi, DriverApi, Failure, cudnn_api,
    cudnnBackendDescriptor_t, driver_api, enter_context, leave_context, relax_capture,
    restore_capture,
)
from cudnn_bindgen.runtime.override_values cimport OverrideValues


cdef Plan* create_plan(
    const CudnnApi* cudnn, Handle* handle, const char* text, int64_t length, Failure* failure
) noexcept nogil:
    """Create a plan on the handle's device from cuDNN's own text.

    `length` counts the final NUL, as cuDNN does. Takes 0.5 to 6 ms (H200). Returns NULL and fills
    `failure` when a call fails.
    """
    cdef cudnnBackendDescriptor_t descriptor = NULL
    cdef Plan* plan = new Plan()
    cdef const DriverApi* driver = driver_api()
    cdef int mode = relax_capture(driver)
    cdef bint created = (
        _call(failure, "cudnnBackendCreateDescriptor", cudnn.create_descriptor(
            CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &descriptor))
        and _call(failure, "cudnnBackendSetAttribute", cudnn.set_attribute(
            descriptor, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle.cudnn))
        and _call(failure, "cudnnBackendSetAttribute", cudnn.set_attribute(
            descriptor, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
            length, text))
        and _call(failure, "cudnnBackendFinalize", cudnn.finalize(descriptor))
        and _call(failure, "cudnnBackendGetAttribute", cudnn.get_attribute(
            descriptor, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
            NULL, &plan.workspace_size))
    )
    if not created and descriptor != NULL:
        cudnn.destroy_descriptor(descriptor)
    restore_capture(driver, mode)
    if not created:
        del plan
        return NULL
    plan.descriptor = descriptor
    plan.context = handle.context
    return plan


cdef int destroy_plan(Plan* plan, Failure* failure) noexcept nogil:
    """Destroy a plan that no call is inside of; safe while other threads capture."""
    cdef const DriverApi* driver = driver_api()
    cdef int mode = relax_capture(driver)
    cdef CUcontext before = enter_context(driver, plan.context)
    cdef int status = cudnn_api().destroy_descriptor(plan.descriptor)
    leave_context(driver, plan.context, before)
    restore_capture(driver, mode)
    del plan
    return 0 if _call(failure, "cudnnBackendDestroyDescriptor", status) else -1


cdef int launch_plan(
    const CudnnApi* cudnn, Handle* handle, const Plan* plan,
    int64_t count, const int64_t* uids, void* const* pointers, const OverrideValues* overrides,
    void* workspace, Failure* failure
) noexcept nogil:
    """Enqueue the plan on the handle's stream; return -1 and fill `failure` when a call fails.

    `overrides` may be NULL, but never empty: cuDNN refuses lists of no uids.

    The variant pack lives for this call only: once finalized it is read-only, so a kept one could
    serve the same addresses alone, and calls of several threads need one each anyway.
    """
    cdef cudnnBackendDescriptor_t pack = NULL
    if not _call(failure, "cudnnBackendCreateDescriptor", cudnn.create_descriptor(
            CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack)):
        return -1
    cdef bint launched = (
        _call(failure, "cudnnBackendSetAttribute", cudnn.set_attribute(
            pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids))
        and _call(failure, "cudnnBackendSetAttribute", cudnn.set_attribute(
            pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers))
        and _call(failure, "cudnnBackendSetAttribute", cudnn.set_attribute(
            pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace))
        and (overrides == NULL or _set_overrides(cudnn, pack, overrides, failure))
        and _call(failure, "cudnnBackendFinalize", cudnn.finalize(pack))
        and _call(failure, "cudnnBackendExecute", cudnn.execute(
            handle.cudnn, plan.descriptor, pack))
    )
    cdef int status = cudnn.destroy_descriptor(pack)
    # The first failure is the one to report.
    if launched:
        launched = _call(failure, "cudnnBackendDestroyDescriptor", status)
    return 0 if launched else -1


cdef int ask_workspace_size(
    const CudnnApi* cudnn, Handle* handle, const Plan* plan, const OverrideValues* overrides,
    int64_t* size, Failure* failure
) noexcept nogil:
    """Ask cuDNN (9.23 and newer) how much workspace a call with these overrides needs, in bytes."""
    cdef cudnnBackendDescriptor_t pack = NULL
    cdef size_t needed = 0
    if not _call(failure, "cudnnBackendCreateDescriptor", cudnn.create_descriptor(
            CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack)):
        return -1
    cdef bint asked = (
        _set_overrides(cudnn, pack, overrides, failure)
        and _call(failure, "cudnnBackendFinalize", cudnn.finalize(pack))
        and _call(failure, "cudnnGetExecutionPlanWorkspaceSize", cudnn.get_plan_workspace_size(
            handle.cudnn, plan.descriptor, pack, &needed))
    )
    cdef int status = cudnn.destroy_descriptor(pack)
    if asked:
        asked = _call(failure, "cudnnBackendDestroyDescriptor", status)
    size[0] = <int64_t>needed
    return 0 if asked else -1


cdef bint _set_overrides(
    const CudnnApi* cudnn, cudnnBackendDescriptor_t pack, const OverrideValues* overrides,
    Failure* failure
) noexcept nogil:
    # The element is the vector itself: its address, not that of a pointer to it (frontend 1.32,
    # execution_helpers.h).
    return (
        _call(failure, "cudnnBackendSetAttribute", cudnn.set_attribute(
            pack, CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS, CUDNN_TYPE_INT64,
            overrides.uids.size(), overrides.uids.data()))
        and _call(failure, "cudnnBackendSetAttribute", cudnn.set_attribute(
            pack, CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES, CUDNN_TYPE_VOID_PTR, 1,
            &overrides.dims))
        and _call(failure, "cudnnBackendSetAttribute", cudnn.set_attribute(
            pack, CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES, CUDNN_TYPE_VOID_PTR, 1,
            &overrides.strides))
    )


cdef inline bint _call(Failure* failure, const char* name, int status) noexcept nogil:
    if status == CUDNN_STATUS_SUCCESS:
        return True
    failure[0] = Failure(name, status, False)
    return False
