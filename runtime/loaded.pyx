# cython: language_level=3, freethreading_compatible=True
"""A plan as a graph holds it: the parts a plan file adds to the caller's operands, laid out once.

All of a call's variant pack but the caller's own slots is decided here, when the plan is loaded.
"""
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.ref cimport PyObject
from libc.stdint cimport uint64_t, uintptr_t
from libc.string cimport memcpy
from libcpp.atomic cimport atomic
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.library cimport (
    CUDA_SUCCESS, CUdeviceptr, CUstream, DriverApi, Failure, Kept, Unneeded, driver_api, is_forked,
)
from cudnn_bindgen.runtime.plan cimport Plan, destroy_plan

from cudnn_bindgen.runtime.errors import PlanMismatchError, describe

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
    for _, operation, offset, values in parts.workspace_parts:
        size = 4 * len(values) if operation == COPY else int(values[0]) if operation == ZERO else 0
        if not 0 <= offset <= parts.workspace_size - size:
            raise PlanMismatchError(
                module, "bytes of workspace", f"from {offset} to {offset + size}",
                f"from 0 to {parts.workspace_size}")
    loaded = new LoadedPlan()
    loaded.held = new Kept(loaded, _note_unneeded)
    try:
        _lay_out(loaded, slots, parts)
    except BaseException:
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
    loaded.id = _next_id.fetch_add(1)
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
    del loaded.held
    del loaded
    return result
