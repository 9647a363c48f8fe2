// What `run` checks of the tensors it is given, in one pass without Python: docs/tensors.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "dlpack.hpp"
#include "tensor_layout.hpp"
#include "tensor_overlap.hpp"

namespace cudnn_bindgen {

enum : int { kMostOperands = 300 };  // codegen/check_graph.py lets no graph have more

// How an operand came: an address is trusted, nothing else is known of it. `kNotYetRead` is gone when
// tensors are checked.
enum Given : int { kGivenAddress, kGivenTensor, kGivenReadOnly, kNotYetRead };

// DLDeviceType, DLDevice.
enum : int { kCuda = 2, kCudaManaged = 13, kUnknownDevice = -1 };

// A type in which a framework may hold the elements: code | bits << 8 | lanes << 16 of DLDataType.
struct AcceptedType {
    uint32_t data_type;
    int pack;  // declared elements in one of the tensor's
};

struct TensorRule {
    LayoutRule layout{LayoutKind::kPlain, -1};
    bool is_output = false, may_be_null = false;
    uintptr_t mask = 0;  // alignment - 1
    std::vector<int64_t> dim, stride;
    std::vector<AcceptedType> types;
    std::vector<int> shares;   // slots whose memory an output may be
    uintptr_t span_bytes = 0;  // of a tensor just as declared; 0: ask find_span

    Strided declared() const { return {dim.data(), stride.data(), static_cast<int>(dim.size())}; }

    // Once dim, stride and types stand.
    void finish() {
        const uintptr_t base = uintptr_t{1} << 62;
        const auto bits = static_cast<int64_t>((types[0].data_type >> 8 & 0xff) *
                                               (types[0].data_type >> 16));
        const Span span = find_span({base, declared(), bits});
        const bool is_simple = types.size() == 1 && span.first == base && span.last >= base;
        span_bytes = is_simple ? span.last - base + 1 : 0;
    }
};

// Laid out once, when a module is imported; read by each call.
struct TensorRules {
    std::vector<TensorRule> operands;
    std::vector<int> outputs;       // their slots, in order
    bool computes_nothing = false;  // no output has an element, as declared
    std::atomic<bool> is_checked{true};
    void* names = nullptr;  // tuple: each operand's parameter of `run`; kept by tensors.pyx
};

// The first thing that is wrong.
struct Finding {
    enum What : int {
        kNothing,
        kDeviceType,
        kDevice,
        kDataType,
        kLayout,
        kOtherOrder,
        kReadOnly,
        kNull,
        kAlignment,
        kShared,
    };
    What what = kNothing;
    int slot = 0;
    int other = 0;  // kShared: the slot of the other operand
    int pack = 1;   // kLayout, kOtherOrder
};

// The tensors of one call. `expected` are the shapes where calls override some, else NULL.
struct TensorCall {
    const TensorRules* rules;
    const Strided* expected;
    DLTensor tensors[kMostOperands];
    Given given[kMostOperands];

    Strided expected_of(int slot) const {
        return expected ? expected[slot] : rules->operands[slot].declared();
    }
    int count() const { return static_cast<int>(rules->operands.size()); }
    char* address_of(int slot) const {
        return static_cast<char*>(tensors[slot].data) + tensors[slot].byte_offset;
    }
    Region region_of(int slot) const {
        const DLTensor& tensor = tensors[slot];
        return {reinterpret_cast<uintptr_t>(address_of(slot)),
                {tensor.shape, tensor.strides, tensor.ndim},
                tensor.dtype.bits * tensor.dtype.lanes};
    }
};

namespace detail {

inline bool is_empty(const Strided& shape) {
    for (int axis = 0; axis < shape.rank; ++axis) {
        if (shape.dim[axis] == 0) return true;
    }
    return false;
}

// Equal to the last number, as tensors are most of the time.
inline bool is_identical(const Strided& expected, const DLTensor& tensor) {
    if (tensor.ndim != expected.rank) return false;
    int64_t differences = 0;
    for (int axis = 0; axis < expected.rank; ++axis) {
        differences |= tensor.shape[axis] ^ expected.dim[axis];
        differences |= tensor.strides[axis] ^ expected.stride[axis];
    }
    return !differences;
}

inline int find_pack(const TensorRule& rule, const DLDataType& type) {
    const uint32_t data_type = type.code | type.bits << 8 | uint32_t{type.lanes} << 16;
    for (const AcceptedType& accepted : rule.types) {
        if (accepted.data_type == data_type) return accepted.pack;
    }
    return 0;
}

// Checks all but overlaps; `span` becomes the tensor's.
inline Finding check_one(const TensorCall& call, int slot, int* device, Span* span) {
    const TensorRule& rule = call.rules->operands[slot];
    const DLTensor& tensor = call.tensors[slot];
    if (tensor.device.device_type == kCuda) {
        const int own = tensor.device.device_id;
        if (*device == kUnknownDevice) *device = own;
        if (own != *device && own != kUnknownDevice) return {Finding::kDevice, slot};
    } else if (tensor.device.device_type != kCudaManaged) {
        return {Finding::kDeviceType, slot};
    }
    const int pack = find_pack(rule, tensor.dtype);
    if (!pack) return {Finding::kDataType, slot};
    const Strided expected = call.expected_of(slot);
    if (pack == 1 && !call.expected && rule.span_bytes && is_identical(expected, tensor)) {
        const auto first = reinterpret_cast<uintptr_t>(call.address_of(slot));
        *span = {first, first + rule.span_bytes - 1};
    } else {
        *span = find_span(call.region_of(slot));
        const LayoutMatch match = match_layout(
            rule.layout, expected, {tensor.shape, tensor.strides, tensor.ndim}, pack);
        if (match == LayoutMatch::kOther) return {Finding::kLayout, slot, 0, pack};
        if (match == LayoutMatch::kOtherOrder) return {Finding::kOtherOrder, slot, 0, pack};
    }
    if (call.given[slot] == kGivenReadOnly && rule.is_output) return {Finding::kReadOnly, slot};
    return {};
}

inline bool may_share(const TensorRule& output, int other, Overlap overlap) {
    if (overlap == Overlap::kApart) return true;
    if (overlap == Overlap::kShared) return false;
    for (int slot : output.shares) {
        if (slot == other) return true;
    }
    return false;
}

}  // namespace detail

// Null and misaligned addresses: looked at whether a call is checked or not. Fills `addresses`.
inline Finding take_addresses(const TensorCall& call, void** addresses) {
    for (int slot = 0; slot < call.count(); ++slot) {
        const TensorRule& rule = call.rules->operands[slot];
        char* const address = call.address_of(slot);
        addresses[slot] = address;
        if (!address) {
            const bool may_be_null =
                call.expected ? detail::is_empty(call.expected[slot]) : rule.may_be_null;
            if (!may_be_null) return {Finding::kNull, slot};
        } else if (reinterpret_cast<uintptr_t>(address) & rule.mask) {
            return {Finding::kAlignment, slot};
        }
    }
    return {};
}

// Everything else. `device` becomes the one that all tensors are on, -1 where none says so.
inline Finding check_tensors(const TensorCall& call, int* device) {
    *device = kUnknownDevice;
    Span spans[kMostOperands];
    for (int slot = 0; slot < call.count(); ++slot) {
        if (call.given[slot] == kGivenAddress) continue;
        const Finding finding = detail::check_one(call, slot, device, &spans[slot]);
        if (finding.what) return finding;
    }
    for (int output : call.rules->outputs) {
        if (call.given[output] == kGivenAddress) continue;
        for (int other = 0; other < call.count(); ++other) {
            const bool is_seen = other <= output && call.rules->operands[other].is_output;
            if (is_seen || call.given[other] == kGivenAddress) continue;
            if (are_apart(spans[output], spans[other])) continue;
            const Overlap overlap = find_overlap(call.region_of(output), call.region_of(other));
            if (!detail::may_share(call.rules->operands[output], other, overlap)) {
                return {Finding::kShared, output, other};
            }
        }
    }
    return {};
}

}  // namespace cudnn_bindgen
