// What `run` checks of the tensors it is given, in one pass without Python: docs/tensors.md.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "dlpack.hpp"
#include "tensor_layout.hpp"
#include "tensor_overlap.hpp"

namespace cudnn_bindgen {

enum : int { kMostOperands = 300 };  // codegen/model/limits.py

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
    std::vector<int> shares;  // slots whose memory an output may be

    Strided declared() const { return {dim.data(), stride.data(), static_cast<int>(dim.size())}; }
};

// Laid out once, when a module is imported; read by each call.
struct TensorRules {
    std::vector<TensorRule> operands;
    std::vector<int> outputs;       // their slots, in order
    std::atomic<bool> is_checked{true};
    void* names = nullptr;  // tuple: each operand's parameter of `run`; kept by tensors.pyx

    // What most tensors are just like, of all operands in a row: the caches are cold when a call
    // begins. Of each operand: data type, rank, mask, bytes that it spans (0: look at the rule),
    // dims, strides.
    std::vector<int64_t> common;

    // Once `operands` stand.
    void finish() {
        const uintptr_t base = uintptr_t{1} << 62;
        for (const TensorRule& rule : operands) {
            const uint32_t type = rule.types[0].data_type;
            const int64_t bits = (type >> 8 & 0xff) * (type >> 16);
            const Span span = find_span({base, rule.declared(), bits});
            const bool is_simple = rule.types[0].pack == 1 && span.first == base;
            common.push_back(type);
            common.push_back(static_cast<int64_t>(rule.dim.size()));
            common.push_back(static_cast<int64_t>(rule.mask));
            common.push_back(is_simple ? static_cast<int64_t>(span.last - base + 1) : 0);
            common.insert(common.end(), rule.dim.begin(), rule.dim.end());
            common.insert(common.end(), rule.stride.begin(), rule.stride.end());
        }
    }
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

// The tensors of one call, in memory of the caller's: one of each operand. `expected` are the shapes
// where calls override some, else NULL.
struct TensorCall {
    const TensorRules* rules;
    const Strided* expected;
    DLTensor* tensors;
    Given* given;

    Strided expected_of(int slot) const {
        return expected ? expected[slot] : rules->operands[slot].declared();
    }
    int count() const { return static_cast<int>(rules->operands.size()); }
    char* address_of(int slot) const {
        const DLTensor& tensor = tensors[slot];
        return reinterpret_cast<char*>(reinterpret_cast<uintptr_t>(tensor.data) +
                                       tensor.byte_offset);
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

inline uint32_t type_of(const DLTensor& tensor) {
    return tensor.dtype.code | tensor.dtype.bits << 8 | uint32_t{tensor.dtype.lanes} << 16;
}

// Whether a tensor is equal to the last number to what `common` says, in device memory that is not
// null; then `span` becomes its own.
inline bool is_common(const int64_t* common, const DLTensor& tensor, const char* address,
                      int* device, Span* span) {
    const int64_t type = common[0], rank = common[1], mask = common[2], bytes = common[3];
    if (!bytes || tensor.ndim != rank || type_of(tensor) != type || !address ||
        tensor.device.device_type != kCuda) {
        return false;
    }
    if (*device == kUnknownDevice) *device = tensor.device.device_id;
    const int64_t* const dim = common + 4;
    int64_t differences = tensor.device.device_id ^ *device;
    differences |= reinterpret_cast<int64_t>(address) & mask;
    for (int axis = 0; axis < rank; ++axis) {
        differences |= tensor.shape[axis] ^ dim[axis];
        differences |= tensor.strides[axis] ^ dim[rank + axis];
    }
    const auto first = reinterpret_cast<uintptr_t>(address);
    *span = {first, first + bytes - 1};
    return !differences;
}

inline int find_pack(const TensorRule& rule, uint32_t data_type) {
    for (const AcceptedType& accepted : rule.types) {
        if (accepted.data_type == data_type) return accepted.pack;
    }
    return 0;
}

// Checks all but the address and overlaps; `span` becomes the tensor's.
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
    const int pack = find_pack(rule, type_of(tensor));
    if (!pack) return {Finding::kDataType, slot};
    const LayoutMatch match = match_layout(rule.layout, call.expected_of(slot),
                                           {tensor.shape, tensor.strides, tensor.ndim}, pack);
    if (match == LayoutMatch::kOther) return {Finding::kLayout, slot, 0, pack};
    if (match == LayoutMatch::kOtherOrder) return {Finding::kOtherOrder, slot, 0, pack};
    *span = find_span(call.region_of(slot));
    if (call.given[slot] == kGivenReadOnly && rule.is_output) return {Finding::kReadOnly, slot};
    return {};
}

inline Finding check_address(const TensorCall& call, int slot, const char* address) {
    const TensorRule& rule = call.rules->operands[slot];
    if (reinterpret_cast<uintptr_t>(address) & rule.mask) return {Finding::kAlignment, slot};
    if (address) return {};
    const bool may_be_null = call.expected ? is_empty(call.expected[slot]) : rule.may_be_null;
    return may_be_null ? Finding{} : Finding{Finding::kNull, slot};
}

inline bool may_share(const TensorRule& output, int other, Overlap overlap) {
    if (overlap == Overlap::kApart) return true;
    if (overlap == Overlap::kShared) return false;
    for (int slot : output.shares) {
        if (slot == other) return true;
    }
    return false;
}

inline Finding check_overlaps(const TensorCall& call, const Span* spans) {
    for (int output : call.rules->outputs) {
        if (call.given[output] == kGivenAddress) continue;
        for (int other = 0; other < call.count(); ++other) {
            if (call.given[other] == kGivenAddress || are_apart(spans[output], spans[other])) {
                continue;
            }
            // Two outputs are compared once.
            if (other <= output && call.rules->operands[other].is_output) continue;
            const Overlap overlap = find_overlap(call.region_of(output), call.region_of(other));
            if (!may_share(call.rules->operands[output], other, overlap)) {
                return {Finding::kShared, output, other};
            }
        }
    }
    return {};
}

}  // namespace detail

// The first tensor that shares a byte with memory of the call's own, its workspace; -1: none does.
inline int find_user_of(const Region& memory, const TensorCall& call) {
    for (int slot = 0; slot < call.count(); ++slot) {
        if (call.given[slot] == kGivenAddress) continue;
        if (find_overlap(memory, call.region_of(slot)) != Overlap::kApart) return slot;
    }
    return -1;
}

// Null and misaligned addresses alone: for calls that are not checked. Fills `addresses`.
inline Finding take_addresses(const TensorCall& call, void** addresses) {
    for (int slot = 0; slot < call.count(); ++slot) {
        char* const address = call.address_of(slot);
        addresses[slot] = address;
        const Finding finding = detail::check_address(call, slot, address);
        if (finding.what) return finding;
    }
    return {};
}

// The checks of tensors that have no memory yet: all but addresses and overlaps.
inline Finding check_described(const TensorCall& call) {
    int device = kUnknownDevice;
    Span span;
    for (int slot = 0; slot < call.count(); ++slot) {
        if (call.given[slot] == kGivenAddress) continue;
        const Finding finding = detail::check_one(call, slot, &device, &span);
        if (finding.what) return finding;
    }
    return {};
}

// All checks. `device` becomes the one that all tensors are on, -1 where none says so.
inline Finding check_tensors(const TensorCall& call, void** addresses, int* device) {
    const int64_t* common = call.rules->common.data();
    Span spans[kMostOperands];
    *device = kUnknownDevice;
    for (int slot = 0; slot < call.count(); ++slot, common += 4 + 2 * common[1]) {
        char* const address = call.address_of(slot);
        addresses[slot] = address;
        if (!call.expected && call.given[slot] == kGivenTensor &&
            detail::is_common(common, call.tensors[slot], address, device, &spans[slot])) {
            continue;
        }
        if (call.given[slot] != kGivenAddress) {
            const Finding finding = detail::check_one(call, slot, device, &spans[slot]);
            if (finding.what) return finding;
        }
        const Finding finding = detail::check_address(call, slot, address);
        if (finding.what) return finding;
    }
    return detail::check_overlaps(call, spans);
}

// `check_tensors` in two halves, for operands that are bound one by one. This one: what can be said
// of one alone; if not `is_checked`, its address only. `span` becomes a tensor's own.
inline Finding check_operand(const TensorCall& call, int slot, bool is_checked, Span* span) {
    int device = kUnknownDevice;
    if (call.given[slot] != kGivenAddress) {
        const Finding finding = is_checked ? detail::check_one(call, slot, &device, span) : Finding{};
        if (finding.what) return finding;
        if (!is_checked) *span = find_span(call.region_of(slot));
    }
    return detail::check_address(call, slot, call.address_of(slot));
}

// The other half: what can be said once all of them are there. `device` becomes the one that they
// are on, -1 where none says so.
inline Finding check_together(const TensorCall& call, const Span* spans, int* device) {
    *device = kUnknownDevice;
    for (int slot = 0; slot < call.count(); ++slot) {
        const DLDevice& own = call.tensors[slot].device;
        if (call.given[slot] == kGivenAddress || own.device_type != kCuda) continue;
        if (*device == kUnknownDevice) *device = own.device_id;
        if (own.device_id != *device && own.device_id != kUnknownDevice) {
            return {Finding::kDevice, slot};
        }
    }
    return detail::check_overlaps(call, spans);
}

}  // namespace cudnn_bindgen
