# cython: language_level=3, freethreading_compatible=True
"""A plan of kernels, from module_data to kernel_plan.hpp: checked, because anybody edits files."""
from cpython.bytes cimport PyBytes_AS_STRING
from libc.stdint cimport int64_t, uint64_t
from libc.string cimport memcpy, memset
from libcpp.string cimport string
from libcpp.vector cimport vector

from cudnn_bindgen.runtime.errors import BindingError

cdef extern from "driver.hpp" namespace "cudnn_bindgen" nogil:
    cppclass AttributeValue:
        unsigned char[64] bytes

    cppclass LaunchAttribute:
        int id
        AttributeValue value

cdef extern from "kernel_plan.hpp" namespace "cudnn_bindgen" nogil:
    cppclass Source:
        int slot
        int64_t offset

    cppclass PlannedMap:
        int data_type
        unsigned int rank
        uint64_t[5] dims
        uint64_t[4] strides
        unsigned int[5] box
        unsigned int[5] element_strides
        int[4] modes
        Source source

    cppclass PlannedKernel:
        size_t binary
        string name
        unsigned int[3] grid
        unsigned int[3] block
        unsigned int shared_bytes
        vector[LaunchAttribute] attributes

    cppclass LaidOut "cudnn_bindgen::KernelPlan":
        vector[string] binaries
        vector[PlannedMap] maps
        vector[PlannedKernel] kernels
        int64_t workspace_size
        void add_parameter(PlannedKernel& kernel, const char* content, size_t size)
        bint add_word(const PlannedKernel& kernel, size_t parameter, size_t place, Source source)
        bint add_map(const PlannedKernel& kernel, size_t parameter, size_t place, size_t number)

cdef enum:
    # As kernel_plan.hpp has room for.
    MOST_PARAMETERS = 64
    MOST_BYTES = 1 << 20
    # Of a CUlaunchAttributeValue.
    MOST_VALUE = 64


cdef KernelPlan* lay_out_kernels(str module, dict slots, object kernels) except NULL:
    """Lay out a module_data.KernelPlan. Raises BindingError if it cannot be what it says."""
    cdef LaidOut* laid_out = new LaidOut()
    try:
        laid_out.workspace_size = kernels.workspace_size
        for binary in kernels.binaries:
            laid_out.binaries.push_back(<string><bytes>binary)
        for number, each in enumerate(kernels.tensor_maps):
            laid_out.maps.push_back(_as_map(slots, each, f"{module}: tensor map {number}"))
        for number, each in enumerate(kernels.launches):
            _add_launch(laid_out, slots, each, f"{module}: launch {number}")
    except BaseException:
        del laid_out
        raise
    return <KernelPlan*>laid_out


cdef PlannedMap _as_map(dict slots, object each, str what) except *:
    cdef PlannedMap planned
    cdef int axis, rank = len(each.dims)
    lengths = len(each.strides) + 1, len(each.box), len(each.element_strides)
    if not 1 <= rank <= 5 or lengths != (rank, rank, rank):
        raise BindingError(f"{what}: expected 1 to 5 axes everywhere, got {rank} dims")
    planned.data_type = each.data_type
    planned.rank = rank
    for axis in range(rank):
        planned.dims[axis] = each.dims[axis]
        planned.box[axis] = each.box[axis]
        planned.element_strides[axis] = each.element_strides[axis]
        if axis:
            planned.strides[axis - 1] = each.strides[axis - 1]
    planned.modes[0] = each.interleave
    planned.modes[1] = each.swizzle
    planned.modes[2] = each.l2_promotion
    planned.modes[3] = each.fill
    planned.source = _as_source(slots, each.source, each.offset, what)
    return planned


cdef Source _as_source(dict slots, object uid, object offset, str what) except *:
    cdef Source source
    if uid is not None and uid not in slots:
        raise BindingError(f"{what}: expected the uid of an operand, got {uid}")
    source.slot = -1 if uid is None else slots[uid]
    source.offset = offset
    return source


cdef int _add_launch(LaidOut* laid_out, dict slots, object each, str what) except -1:
    cdef PlannedKernel kernel
    cdef LaunchAttribute attribute
    cdef int axis
    if not 0 <= each.binary < <object>laid_out.binaries.size():
        raise BindingError(f"{what}: expected one of the binaries, got number {each.binary}")
    sizes = [len(content) for content in each.parameters]
    if len(sizes) > MOST_PARAMETERS or sum(sizes) > MOST_BYTES:
        raise BindingError(
            f"{what}: expected at most {MOST_PARAMETERS} parameters of {MOST_BYTES} bytes in all, "
            f"got {len(sizes)} of {sum(sizes)}")
    kernel.binary = each.binary
    kernel.name = each.kernel.encode()
    kernel.shared_bytes = each.shared
    for axis in range(3):
        kernel.grid[axis] = each.grid[axis]
        kernel.block[axis] = each.block[axis]
    for number, value in each.attributes:
        if len(value) > MOST_VALUE:
            raise BindingError(
                f"{what}: expected an attribute of at most {MOST_VALUE} bytes, got {len(value)}")
        memset(&attribute, 0, sizeof(attribute))
        attribute.id = number
        memcpy(attribute.value.bytes, PyBytes_AS_STRING(value), len(value))
        kernel.attributes.push_back(attribute)
    for content in each.parameters:
        laid_out.add_parameter(kernel, PyBytes_AS_STRING(content), len(content))
    for parameter, place, uid, offset in each.addresses:
        if not laid_out.add_word(kernel, parameter, place, _as_source(slots, uid, offset, what)):
            raise BindingError(
                f"{what}: expected an address inside of parameter {parameter}, got one at {place}")
    for parameter, place, number in each.tensor_maps:
        if not laid_out.add_map(kernel, parameter, place, number):
            raise BindingError(
                f"{what}: expected one of the tensor maps, aligned, inside of parameter "
                f"{parameter}, got number {number} at {place}")
    laid_out.kernels.push_back(kernel)
    return 0
