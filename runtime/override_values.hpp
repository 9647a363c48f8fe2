// Execute-time overrides of shapes and strides: their values, laid out once as cuDNN reads them.
// Knows nothing of cuDNN but that it takes std::vector<std::vector<int64_t>> by address.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "override_table.hpp"

namespace cudnn_bindgen {

// Why values cannot be taken; `slot` and `axis` say where.
struct Refused {
    enum Why : int { kNothing, kNegativeDim, kNegativeStride, kAboveDeclared, kTooLarge };
    int why = kNothing;
    int slot = 0, axis = 0;
    int64_t value = 0;
};

// One set of overrides. Used by one thread at a time. A method that returns a Refused has changed
// nothing if it is one.
class OverrideValues {
  public:
    explicit OverrideValues(const OverrideTable& table)
        : table_(table), places_(table.shapes.size(), -1), next_(table.shapes.size()),
          is_touched_(table.shapes.size()) {
        for (size_t slot = 0; slot < next_.size(); ++slot) {
            next_[slot].dim = table.shapes[slot].dim;
            next_[slot].stride = table.shapes[slot].stride;
        }
    }

    // As cuDNN takes them: parallel, of the operands that are overridden, in slot order.
    std::vector<int64_t> uids;
    std::vector<std::vector<int64_t>> dims, strides;

    // What others keep beside the values, until they change.
    uint64_t checked_for = kNone;  // the plan whose rules they keep
    uint64_t sized_for = kNone;    // the plan and device that `workspace_size` is for
    int sized_on = -1;
    int64_t workspace_size = 0;

    const OverrideTable& table() const { return table_; }
    bool has(int slot) const { return places_[slot] >= 0; }
    const std::vector<int64_t>& dim(int slot) const {
        return has(slot) ? dims[places_[slot]] : table_.shapes[slot].dim;
    }
    const std::vector<int64_t>& stride(int slot) const {
        return has(slot) ? strides[places_[slot]] : table_.shapes[slot].stride;
    }
    bool is_empty_at(int slot) const {
        const std::vector<int64_t>& sizes = dim(slot);
        return std::find(sizes.begin(), sizes.end(), 0) != sizes.end();
    }
    // Whether no output has an element, so that there is nothing to compute.
    bool computes_nothing() const { return computes_nothing_; }

    // Bytes that are equal for equal values of one graph, and a hash of them.
    const std::string& key() const { return key_; }
    uint64_t hash() const { return hash_; }

    // Overrides one operand: `given` says which of `stride` are meant, the others follow the dims.
    Refused set(int slot, const int64_t* dim, const int64_t* stride, const char* given) {
        const DeclaredShape& shape = table_.shapes[slot];
        Next& next = next_[slot];
        next.dim.assign(dim, dim + shape.dim.size());
        const Refused refused = pack(slot, stride, given, nullptr);
        if (refused.why) {
            restore(slot);
        } else {
            commit(slot);
            changed();
        }
        return refused;
    }

    // Gives numbers to symbols: those that `given` says; strides of all operands that follow them
    // are decided anew.
    Refused set_symbols(const int64_t* numbers, const char* given) {
        touched_.clear();
        std::fill(is_touched_.begin(), is_touched_.end(), false);
        Refused refused;
        for (size_t index = 0; index < table_.symbols.size() && !refused.why; ++index) {
            if (!given[index]) continue;
            for (int slot : table_.symbols[index].slots) {
                if (!is_touched_[slot]) touched_.push_back(slot);
                is_touched_[slot] = true;
            }
            for (const SymbolUse& use : table_.symbols[index].uses) {
                if (!follow(numbers[index], use.steps, &next_[use.slot].dim[use.axis])) {
                    refused = {Refused::kTooLarge, use.slot, use.axis, numbers[index]};
                    break;
                }
            }
        }
        for (size_t index = 0; index < touched_.size() && !refused.why; ++index) {
            const int slot = touched_[index];
            refused = pack(slot, nullptr, nullptr, table_.shapes[slot].keeps.data());
        }
        if (refused.why) {
            for (int slot : touched_) restore(slot);
            return refused;
        }
        for (int slot : touched_) commit(slot);
        if (!touched_.empty()) changed();
        return refused;
    }

    void reset() {
        uids.clear();
        dims.clear();
        strides.clear();
        std::fill(places_.begin(), places_.end(), -1);
        for (size_t slot = 0; slot < next_.size(); ++slot) restore(static_cast<int>(slot));
        changed();
    }

    bool operator==(const OverrideValues& other) const {
        return &table_ == &other.table_ && key_ == other.key_;
    }

  private:
    enum : uint64_t { kNone = ~uint64_t{0} };
    struct Next {
        std::vector<int64_t> dim, stride;
    };

    static bool follow(int64_t number, const std::vector<SymbolStep>& steps, int64_t* dim) {
        for (const SymbolStep& step : steps) {
            if (step.operation == '+' ? __builtin_add_overflow(number, step.number, &number)
                : step.operation == '*'
                    ? __builtin_mul_overflow(number, step.number, &number)
                    : __builtin_add_overflow(number, step.number - 1, &number)) {
                return false;
            }
            if (step.operation == '/' || step.operation == '%') number /= step.number;
            if (step.operation == '%') number *= step.number;
        }
        *dim = number;
        return true;
    }

    // Checks the next dims of a slot and decides its next strides. Of an axis that `keeps` names
    // the declared dim counts further out, not the next one.
    Refused pack(int slot, const int64_t* stride, const char* given, const char* keeps) {
        const DeclaredShape& shape = table_.shapes[slot];
        const int rank = static_cast<int>(shape.dim.size());
        const int64_t* const dim = next_[slot].dim.data();
        int64_t* const strides = next_[slot].stride.data();
        int64_t elements = 1, span = 0, running = 0;
        for (int axis = 0; axis < rank; ++axis) {
            const int64_t size = dim[axis];
            if (size < 0) return {Refused::kNegativeDim, slot, axis, size};
            if (size > shape.dim[axis] && !table_.is_unbounded) {
                return {Refused::kAboveDeclared, slot, axis, size};
            }
            // In bytes, too, it must fit.
            if (__builtin_mul_overflow(elements, size, &elements) || elements > shape.most) {
                return {Refused::kTooLarge, slot, axis, size};
            }
            const bool is_given = given && given[axis];
            strides[axis] = is_given ? stride[axis] : shape.stride[axis];
            if (is_given && strides[axis] < 0) {
                return {Refused::kNegativeStride, slot, axis, strides[axis]};
            }
        }
        for (size_t index = 0; index < shape.order.size(); ++index) {
            const int axis = shape.order[index];
            const bool is_given = given && given[axis];
            const bool follows = shape.follows[index] && running;
            if (!is_given && follows) strides[axis] = running;
            const int64_t size = keeps && keeps[axis] ? shape.dim[axis] : dim[axis];
            if ((follows || is_given || size > 1 || !running) &&
                __builtin_mul_overflow(strides[axis], std::max<int64_t>(size, 1), &running)) {
                return {Refused::kTooLarge, slot, axis, size};
            }
        }
        for (int axis = 0; axis < rank; ++axis) {
            if (dim[axis] <= 1) continue;
            int64_t reach;
            const int64_t step = strides[axis] < 0 ? -(strides[axis] + 1) : strides[axis];
            if (__builtin_mul_overflow(step, dim[axis] - 1, &reach) ||
                __builtin_add_overflow(span, reach, &span)) {
                return {Refused::kTooLarge, slot, axis, dim[axis]};
            }
        }
        return {};
    }

    void restore(int slot) {
        next_[slot].dim = dim(slot);
        next_[slot].stride = stride(slot);
    }

    void commit(int slot) {
        const Next& next = next_[slot];
        if (!has(slot)) {  // allocates, once an operand
            int place = 0;
            for (int earlier = 0; earlier < slot; ++earlier) place += has(earlier);
            uids.insert(uids.begin() + place, table_.shapes[slot].uid);
            dims.insert(dims.begin() + place, next.dim);
            strides.insert(strides.begin() + place, next.stride);
            for (int& other : places_) other += other >= place;
            places_[slot] = place;
            return;
        }
        std::copy(next.dim.begin(), next.dim.end(), dims[places_[slot]].begin());
        std::copy(next.stride.begin(), next.stride.end(), strides[places_[slot]].begin());
    }

    // Decides anew what a call would else decide each time.
    void changed() {
        checked_for = sized_for = kNone;
        computes_nothing_ = false;
        bool has_output = false, has_element = false;
        for (size_t slot = 0; slot < table_.shapes.size(); ++slot) {
            if (!table_.shapes[slot].is_output) continue;
            has_output = true;
            has_element = has_element || !is_empty_at(static_cast<int>(slot));
        }
        computes_nothing_ = has_output && !has_element;
        // One buffer, written in place: a key is made anew for each value.
        size_t words = uids.size();
        for (const auto& one : dims) words += 2 * one.size();
        key_.resize(words * sizeof(int64_t));
        char* end = &key_[0];
        uint64_t sum = 0, factor = 0x9E3779B97F4A7C15u;
        const auto add = [&](const int64_t* from, size_t count) {
            std::memcpy(end, from, count * sizeof(int64_t));
            end += count * sizeof(int64_t);
            for (size_t index = 0; index < count; ++index) {
                sum += static_cast<uint64_t>(from[index]) * factor;
                factor += 2 * 0x9E3779B97F4A7C15u;
            }
        };
        for (size_t index = 0; index < uids.size(); ++index) {
            add(&uids[index], 1);
            add(dims[index].data(), dims[index].size());
            add(strides[index].data(), strides[index].size());
        }
        hash_ = (sum ^ sum >> 32) * 0xD6E8FEB86659FD93u;
        hash_ ^= hash_ >> 29;
    }

    const OverrideTable& table_;
    std::vector<int> places_;  // by slot: index into `uids`, -1 if not overridden
    std::vector<Next> next_;   // by slot: what is being set; else a copy of what is set
    std::vector<int> touched_;
    std::vector<char> is_touched_;
    std::string key_;
    uint64_t hash_ = 0;
    bool computes_nothing_ = false;
};

}  // namespace cudnn_bindgen
