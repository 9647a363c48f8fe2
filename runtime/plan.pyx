# cython: language_level=3, freethreading_compatible=True
"""The plans of a graph: a set of them, each laid out, and its execution plan on each device.

Laying out decides all of a call's variant pack but the caller's own slots, when a plan is loaded.
Failures of cuDNN are values here (`Failure`): a caller may hold a lock that must not wait for the
GIL.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport PyObject
from libc.stdint cimport int64_t, uint64_t, uintptr_t
from libc.string cimport memcpy
from libcpp.atomic cimport atomic
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.handle cimport Handle
from cudnn_bindgen.runtime.kernel_plan cimport lay_out_kernels
from cudnn_bindgen.runtime.library cimport (
    CUDA_SUCCESS, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
    CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
    CUDNN_ATTR_VARIANT_PACK_OVERRIDE_SHAPES, CUDNN_ATTR_VARIANT_PACK_OVERRIDE_STRIDES,
    CUDNN_ATTR_VARIANT_PACK_OVERRIDE_UNIQUE_IDS, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
    CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR,
    CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_STATUS_SUCCESS, CUDNN_TYPE_CHAR, CUDNN_TYPE_HANDLE,
    CUDNN_TYPE_INT64, CUDNN_TYPE_VOID_PTR, CUcontext, CUdeviceptr, CudnnApi,
    cudnnBackendDescriptor_t, CUstream, DriverApi, Failure, Kept, Unneeded, cudnn_api, driver_api,
    enter_context, is_forked, leave_context, relax_capture, restore_capture,
)
from cudnn_bindgen.runtime.override_values cimport OverrideValues

from cudnn_bindgen.runtime.record cimport STAYS_ON_STREAM

from cudnn_bindgen.runtime.errors import PlanMismatchError, describe

cdef extern from "kernel_plan.hpp" namespace "cudnn_bindgen" nogil:
    cppclass Failed:
        const char* call
        int status

    Failed load_kernels(
        const DriverApi& driver, const KernelPlan& plan, int device, vector[void*]& functions)
    Failed launch_kernels(
        const DriverApi& driver, const KernelPlan& plan, const vector[void*]& functions,
        void** slots, const char* workspace, CUstream stream)

cdef extern from "Python.h":
    void increment_reference "Py_INCREF"(object)
    void decrement_reference "Py_DECREF"(PyObject*)

cdef extern from * nogil:
    """
    #include <mutex>
    #include <set>
    #include <vector>

    // A copy of `values` that is never freed, because queued launches and CUDA graphs read it on
    // the host at times of their own. The same values have one: so many as there are plan files.
    static const float* keep_values(const std::vector<float>& values) {
        static auto& mutex = *new std::mutex;
        static auto& all = *new std::set<std::vector<float>>;
        std::lock_guard<std::mutex> lock(mutex);
        return all.insert(values).first->data();
    }
    """
    const float* keep_values(const vector[float]& values)

cdef atomic[uint64_t] _next_id
# Plans that were unloaded while captured CUDA graphs needed them, which they do not any more.
cdef Unneeded _unneeded

cdef enum:
    COPY = 0
    ZERO = 1


cdef uint64_t next_id() noexcept nogil:
    """What no plan of the process has yet."""
    return _next_id.fetch_add(1)


cdef PlanSet* load_set(
    tuple owner, tuple operands, tuple plans, object make_missing
) except NULL:
    """Lay out `plans` (module_data.PlanParts) for a graph; `make_missing` is None or a callable.

    `owner`: (module, fingerprint). Raises PlanMismatchError; needs no GPU.
    """
    cdef PlanSet* loaded = new PlanSet()
    cdef Failure ignored
    module, fingerprint = owner
    try:
        for parts in plans:
            loaded.plans.push_back(load_parts(module, fingerprint, operands, parts))
        if make_missing is not None:
            from cudnn_bindgen.runtime.plan_maker import PlanMaker
            maker = PlanMaker(module, make_missing)
            increment_reference(maker)
            loaded.maker = <void*>maker
    except BaseException:
        unload_set(loaded, &ignored)
        raise
    return loaded


cdef LoadedPlan* find_plan(const PlanSet* plans, DeviceKind kind) noexcept nogil:
    """The plan for a kind of device or NULL: cuDNN's of this SM count, kernels, cuDNN's of any."""
    cdef LoadedPlan* plan
    cdef LoadedPlan* of_any_count = NULL
    cdef LoadedPlan* of_kernels = NULL
    cdef size_t index
    for index in range(plans.plans.size()):
        plan = plans.plans[index]
        if plan.sm != kind.sm:
            continue
        if plan.cudnn_version == 0:
            if plan.sm_count == kind.sm_count and of_kernels == NULL:
                of_kernels = plan
        elif plan.cudnn_version == kind.cudnn_version:
            if plan.sm_count == kind.sm_count:
                return plan
            if plan.sm_count == 0 and of_any_count == NULL:
                of_any_count = plan
    return of_kernels if of_kernels != NULL else of_any_count


cdef DeviceKind kind_of(const LoadedPlan* plan) noexcept nogil:
    """What a plan is for."""
    return DeviceKind(plan.sm, plan.sm_count, plan.cudnn_version)


cdef vector[DeviceKind] kinds_of(const PlanSet* plans) noexcept nogil:
    """What each plan is for."""
    cdef vector[DeviceKind] kinds
    cdef size_t index
    for index in range(plans.plans.size()):
        kinds.push_back(kind_of(plans.plans[index]))
    return kinds


cdef int unload_set(PlanSet* plans, Failure* failure) noexcept nogil:
    """Destroy all plans on all devices, and the set itself; no call may be inside it."""
    cdef int result = 0
    cdef size_t index
    for index in range(plans.plans.size()):
        if unload(plans.plans[index], failure) < 0:
            result = -1
    if plans.maker != NULL:
        with gil:
            decrement_reference(<PyObject*>plans.maker)
    del plans
    return result


cdef LoadedPlan* load_parts(str module, str fingerprint, tuple operands, object parts) except NULL:
    """Lay out `parts` (a PlanParts) for a graph. Raises PlanMismatchError; needs no GPU."""
    cdef LoadedPlan* loaded
    slots = {operand.uid: slot for slot, operand in enumerate(operands)}
    if parts.fingerprint != fingerprint:
        raise PlanMismatchError(module, "graph", parts.fingerprint, fingerprint)
    if set(parts.uids) != set(slots):
        here = ", ".join(map(str, sorted(slots)))
        raise PlanMismatchError(module, "uids", ", ".join(map(str, parts.uids)), here)
    # `execute` checks what the module was emitted for, so a plan must not ask for more.
    for uid, size in parts.alignments:
        operand = operands[slots[uid]]
        if size > operand.alignment:
            what = f"an alignment of {operand.argument} of"
            raise PlanMismatchError(module, what, str(size), str(operand.alignment))
    check_size(module, parts.workspace_size)
    if parts.kernels is not None:
        check_size(module, parts.kernels.workspace_size)
    for _, operation, offset, values in parts.workspace_parts:
        size = 4 * len(values) if operation == COPY else int(values[0]) if operation == ZERO else 0
        if not 0 <= offset <= parts.workspace_size - size:
            raise PlanMismatchError(
                module, "bytes of workspace", f"from {offset} to {offset + size}",
                f"from 0 to {parts.workspace_size}")
    loaded = new LoadedPlan()
    loaded.held = new Kept(loaded, _note_unneeded)
    try:
        if parts.kernels is not None:
            loaded.kernels = lay_out_kernels(module, slots, parts.kernels)
        _lay_out(loaded, slots, parts)
    except BaseException:
        del loaded.kernels
        del loaded.held
        del loaded
        raise
    return loaded


cdef int check_size(object module, object size) except -1:
    """Raise PlanMismatchError for more workspace, the frontend's and cuDNN's, than any device has.
    """
    if not 0 <= size <= most_workspace():
        raise PlanMismatchError(
            module, "a workspace of", f"{describe(size)} bytes",
            f"at most {most_workspace()} bytes")
    return 0


cdef int _lay_out(LoadedPlan* loaded, dict slots, object parts) except -1:
    cdef WorkspacePart part
    cdef Replacement replacement
    cdef Aligned aligned
    cdef uint64_t bits
    loaded.id = next_id()
    loaded.cudnn_version = parts.cudnn_version
    loaded.sm = parts.sm
    loaded.sm_count = parts.sm_count
    loaded.frontend_workspace = parts.workspace_size
    dropped = set(parts.dropped)
    loaded.keeps_all = not dropped
    for uid, slot in slots.items():
        if uid not in dropped:
            loaded.uids.push_back(uid)
            if not loaded.keeps_all:
                loaded.kept.push_back(slot)
    for uid, size in parts.alignments:
        aligned.slot = slots[uid]
        aligned.alignment = size
        loaded.aligned.push_back(aligned)
    for uid, data in parts.constants:
        bits = 0
        memcpy(&bits, PyBytes_AS_STRING(data), min(<size_t>len(data), sizeof(bits)))
        loaded.uids.push_back(uid)
        loaded.constants.push_back(bits)
    for uid, operation, offset, values in parts.workspace_parts:
        part.operation = operation
        part.offset = offset
        part.values = NULL
        part.size = 0
        if operation == COPY:
            part.size = 4 * len(values)
            part.values = keep_values(values)
        elif operation == ZERO:
            part.size = int(values[0])
        loaded.uids.push_back(uid)
        loaded.parts.push_back(part)
    for source, target, offset in parts.replacements:
        replacement.source = slots[source]
        replacement.offset = offset
        loaded.uids.push_back(target)
        loaded.replacements.push_back(replacement)
    text = parts.text
    loaded.text = <void*>text
    increment_reference(text)
    return 0


cdef int fill_pack(
    LoadedPlan* loaded, int count, void** slots, char* workspace, void** pack
) noexcept nogil:
    """Write the pack's pointers, in the order of `loaded.uids`, and return their number."""
    cdef size_t i
    cdef int filled = 0
    if loaded.keeps_all:
        memcpy(pack, slots, count * sizeof(void*))
        filled = count
    else:
        for i in range(loaded.kept.size()):
            pack[filled] = slots[loaded.kept[i]]
            filled += 1
    for i in range(loaded.constants.size()):
        pack[filled] = &loaded.constants[i]
        filled += 1
    for i in range(loaded.parts.size()):
        pack[filled] = workspace + loaded.parts[i].offset
        filled += 1
    for i in range(loaded.replacements.size()):
        pack[filled] = <void*>(
            <uintptr_t>slots[loaded.replacements[i].source] + loaded.replacements[i].offset)
        filled += 1
    return filled


cdef int prepare_workspace(
    const LoadedPlan* loaded, const DriverApi* driver, char* workspace, CUstream stream,
    Failure* failure
) noexcept nogil:
    """Enqueue the copies and memsets that must precede each launch."""
    cdef size_t i
    cdef const WorkspacePart* part
    cdef const char* call = NULL
    cdef int status
    for i in range(loaded.parts.size()):
        part = &loaded.parts[i]
        status = CUDA_SUCCESS
        if part.operation == COPY and part.size:
            call = "cuMemcpyHtoDAsync"
            status = driver.copy_to_device(
                <CUdeviceptr>(workspace + part.offset), part.values, part.size, stream)
        elif part.operation == ZERO and part.size:
            call = "cuMemsetD8Async"
            status = driver.set_bytes(
                <CUdeviceptr>(workspace + part.offset), 0, part.size, stream)
        if status != CUDA_SUCCESS:
            failure[0] = Failure(call, status, True)
            return -1
    return 0


cdef int unload(LoadedPlan* loaded, Failure* failure) noexcept nogil:
    """Destroy the execution plans on all devices and the plan itself; no call may be inside it.

    What captured CUDA graphs launch stays until `destroy_unneeded_plans`.
    """
    if is_forked():
        # The parent's: CUDA cannot be called here.
        return 0
    # Records first: they launch kernels that the plans own.
    loaded.records.empty()
    with gil:
        decrement_reference(<PyObject*>loaded.text)
    return _destroy(loaded, failure) if loaded.held.let_go() else 0


cdef int keep_for_capture(LoadedPlan* loaded, CUstream stream, Failure* failure) noexcept nogil:
    """Let the CUDA graph that `stream` is being captured into own the plan as well."""
    cdef int status
    # Whoever captures again and again, and closes in between, frees what was captured before.
    destroy_unneeded_plans()
    status = loaded.held.hold(driver_api()[0], stream)
    if status == CUDA_SUCCESS:
        return 0
    failure[0] = Failure("cuGraphRetainUserObject", status, True)
    return -1


cdef void destroy_unneeded_plans() noexcept nogil:
    """Destroy what was unloaded before and is in no CUDA graph any more.

    Where cuDNN cannot, nobody is there to be told, and nothing to be tried again.
    """
    cdef Failure ignored
    cdef void* loaded = NULL if is_forked() else _unneeded.take()
    while loaded != NULL:
        _destroy(<LoadedPlan*>loaded, &ignored)
        loaded = _unneeded.take()


cdef void _note_unneeded(void* loaded) noexcept nogil:
    _unneeded.add(loaded)


cdef int _destroy(LoadedPlan* loaded, Failure* failure) noexcept nogil:
    cdef int device, result = 0
    cdef Plan* plan
    for device in range(MAX_DEVICES):
        plan = loaded.by_device[device].exchange(NULL)
        if plan != NULL and destroy_plan(plan, failure) < 0:
            result = -1
    del loaded.kernels
    del loaded.held
    del loaded
    return result


cdef Plan* create_kernels(
    const LoadedPlan* loaded, Handle* handle, Failure* failure
) noexcept nogil:
    """Load the kernels of a plan on the handle's device; NULL and `failure` if that fails."""
    cdef const DriverApi* driver = driver_api()
    cdef Plan* plan = new Plan()
    cdef int mode = relax_capture(driver)
    cdef Failed failed = load_kernels(
        driver[0], loaded.kernels[0], handle.device, plan.functions)
    restore_capture(driver, mode)
    if failed.call != NULL:
        failure[0] = Failure(failed.call, failed.status, True)
        del plan
        return NULL
    plan.context = handle.context
    plan.workspace_size = loaded.kernels.workspace_size
    plan.stream_use.store(STAYS_ON_STREAM)
    return plan


cdef int launch_own(
    const LoadedPlan* loaded, const Plan* plan, void** slots, char* workspace, CUstream stream,
    Failure* failure
) noexcept nogil:
    """Enqueue a plan of kernels; return -1 and fill `failure` when a call fails."""
    cdef Failed failed = launch_kernels(
        driver_api()[0], loaded.kernels[0], plan.functions, slots, workspace, stream)
    if failed.status == CUDA_SUCCESS:
        return 0
    failure[0] = Failure(failed.call, failed.status, True)
    return -1


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
    if plan.descriptor == NULL:  # kernels: their code stays loaded
        del plan
        return 0
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
