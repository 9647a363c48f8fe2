// Execute-time overrides of shapes and strides: their values, laid out once as cuDNN reads them.
// Knows nothing of cuDNN but that it takes std::vector<std::vector<int64_t>> by address.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstdlib>
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
        : table_(table), places_(table.shapes.size(), -1), next_(table.shapes.size()) {
        for (size_t slot = 0; slot < next_.size(); ++slot) {
            next_[slot].dim = table.shapes[slot].dim;
            next_[slot].stride = table.shapes[slot].stride;
        }
        size_t uses = 0;
        for (const OverrideSymbol& symbol : table.symbols) uses += symbol.uses.size();
        followed_.resize(uses);
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
    // Bytes from an operand's address on that its elements take.
    uint64_t span(int slot) const {
        uint64_t elements = 1;
        for (size_t axis = 0; axis < dim(slot).size(); ++axis) {
            const int64_t size = dim(slot)[axis], step = stride(slot)[axis];
            if (size == 0) return 0;
            elements += static_cast<uint64_t>(size - 1) * static_cast<uint64_t>(std::abs(step));
        }
        return (elements * table_.shapes[slot].bits + 7) / 8;
    }
    // Whether no output has an element, so that there is nothing to compute.
    bool computes_nothing() const { return computes_nothing_; }

    // Bytes that are equal for equal values of one graph, and a hash of them; made when asked for.
    const std::string& key() const {
        if (!has_key_) make_key();
        return key_;
    }
    uint64_t hash() const { return key(), hash_; }

    // Overrides one operand: `given` says which of `stride` are meant, the others follow the dims.
    Refused set(int slot, const int64_t* dim, const int64_t* stride, const char* given) {
        const DeclaredShape& shape = table_.shapes[slot];
        Next& next = next_[slot];
        next.dim.assign(dim, dim + shape.dim.size());
        const Refused refused = pack(slot, stride, given, nullptr);
        if (refused.why) return refused;
        commit(slot);
        has_own_strides_ = true;
        changed();
        return {};
    }

    // Gives numbers to symbols: those that `given` says; strides of all operands that follow them
    // are decided anew.
    Refused set_symbols(const int64_t* numbers, const char* given) {
        std::vector<int64_t>::iterator next = followed_.begin();
        for (size_t index = 0; index < table_.symbols.size(); ++index) {
            if (!given[index]) continue;
            for (const SymbolUse& use : table_.symbols[index].uses) {
                const int64_t declared = table_.shapes[use.slot].dim[use.axis];
                if (numbers[index] < 0) {  // whatever the steps would make of it
                    return {Refused::kNegativeDim, use.slot, use.axis, numbers[index]};
                }
                if (!use.follow(numbers[index], &*next)) {
                    return {Refused::kTooLarge, use.slot, use.axis, numbers[index]};
                }
                if (*next > declared && !table_.is_unbounded) {
                    return {Refused::kAboveDeclared, use.slot, use.axis, *next};
                }
                ++next;
            }
        }
        return table_.is_unbounded ? set_followed_checked(given) : set_followed(given);
    }

    void reset() {
        uids.clear();
        dims.clear();
        strides.clear();
        std::fill(places_.begin(), places_.end(), -1);
        has_own_strides_ = false;
        changed();
    }

    bool operator==(const OverrideValues& other) const {
        return &table_ == &other.table_ && key() == other.key();
    }

  private:
    enum : uint64_t { kNone = ~uint64_t{0} };
    struct Next {
        std::vector<int64_t> dim, stride;
    };

    // Writes the dims in `followed_` in place. No dim is above the declared one, so no stride, size
    // or offset is either: nothing can overflow.
    Refused set_followed(const char* given) {
        const int64_t* next = followed_.data();
        for (size_t index = 0; index < table_.symbols.size(); ++index) {
            if (!given[index]) continue;
            for (const SymbolUse& use : table_.symbols[index].uses) {
                if (!has(use.slot)) add(use.slot);
                dims[places_[use.slot]][use.axis] = *next++;
            }
        }
        for (size_t index = 0; index < table_.symbols.size(); ++index) {
            if (!given[index]) continue;
            // Strides that were set one by one must give way, even where no dim moves them.
            const OverrideSymbol& symbol = table_.symbols[index];
            for (int slot : has_own_strides_ ? symbol.slots : symbol.moved) place_strides(slot);
        }
        changed();
        return {};
    }

    // The same where dims may be of any size: all is checked before anything is written.
    Refused set_followed_checked(const char* given) {
        const int64_t* next = followed_.data();
        touched_.clear();
        for (size_t index = 0; index < table_.symbols.size(); ++index) {
            if (!given[index]) continue;
            for (const SymbolUse& use : table_.symbols[index].uses) {
                if (std::find(touched_.begin(), touched_.end(), use.slot) == touched_.end()) {
                    touched_.push_back(use.slot);
                    next_[use.slot].dim = dim(use.slot);
                }
                next_[use.slot].dim[use.axis] = *next++;
            }
        }
        for (int slot : touched_) {
            const Refused refused =
                pack(slot, nullptr, nullptr, table_.shapes[slot].keeps.data());
            if (refused.why) return refused;
        }
        for (int slot : touched_) commit(slot);
        changed();
        return {};
    }

    // Decides the strides of an overridden slot from its dims.
    void place_strides(int slot) {
        const DeclaredShape& shape = table_.shapes[slot];
        const int64_t* const dim = dims[places_[slot]].data();
        int64_t* const stride = strides[places_[slot]].data();
        std::memcpy(stride, shape.stride.data(), shape.stride.size() * sizeof(int64_t));
        shape.follow_dims(dim, stride, nullptr, shape.keeps.data());
    }

    // Checks the next dims of a slot and decides its next strides. Of an axis that `keeps` names
    // the declared dim counts further out, not the next one.
    Refused pack(int slot, const int64_t* stride, const char* given, const char* keeps) {
        const DeclaredShape& shape = table_.shapes[slot];
        const int rank = static_cast<int>(shape.dim.size());
        const int64_t* const dim = next_[slot].dim.data();
        int64_t* const strides = next_[slot].stride.data();
        int64_t elements = 1, span = 0;
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
        const int beyond = shape.follow_dims(dim, strides, given, keeps);
        if (beyond >= 0) {
            const int64_t size = keeps && keeps[beyond] ? shape.dim[beyond] : dim[beyond];
            return {Refused::kTooLarge, slot, beyond, size};
        }
        for (int axis = 0; axis < rank; ++axis) {
            if (dim[axis] <= 1) continue;
            int64_t reach;
            const int64_t step = strides[axis] < 0 ? -(strides[axis] + 1) : strides[axis];
            if (__builtin_mul_overflow(step, dim[axis] - 1, &reach) ||
                __builtin_add_overflow(span, reach, &span) || span >= shape.most) {
                return {Refused::kTooLarge, slot, axis, dim[axis]};
            }
        }
        return {};
    }

    void commit(int slot) {
        const Next& next = next_[slot];
        if (!has(slot)) add(slot);
        std::copy(next.dim.begin(), next.dim.end(), dims[places_[slot]].begin());
        std::copy(next.stride.begin(), next.stride.end(), strides[places_[slot]].begin());
    }

    // Overrides an operand as declared; allocates, once an operand.
    void add(int slot) {
        int place = 0;
        for (int earlier = 0; earlier < slot; ++earlier) place += has(earlier);
        uids.insert(uids.begin() + place, table_.shapes[slot].uid);
        dims.insert(dims.begin() + place, table_.shapes[slot].dim);
        strides.insert(strides.begin() + place, table_.shapes[slot].stride);
        for (int& other : places_) other += other >= place;
        places_[slot] = place;
    }

    // Decides anew what a call would else decide each time.
    void changed() {
        checked_for = sized_for = kNone;
        has_key_ = false;
        computes_nothing_ = !table_.outputs.empty();
        for (int slot : table_.outputs) {
            computes_nothing_ = computes_nothing_ && is_empty_at(slot);
        }
    }

    void make_key() const {
        size_t words = uids.size();
        for (const auto& one : dims) words += 2 * one.size();
        key_.resize(words * sizeof(int64_t));
        char* end = &key_[0];
        const auto add = [&](const int64_t* from, size_t count) {
            std::memcpy(end, from, count * sizeof(int64_t));
            end += count * sizeof(int64_t);
        };
        for (size_t index = 0; index < uids.size(); ++index) {
            add(&uids[index], 1);
            add(dims[index].data(), dims[index].size());
            add(strides[index].data(), strides[index].size());
        }
        hash_ = 0x9E3779B97F4A7C15u;
        for (const char* at = key_.data(); at < end; at += sizeof(uint64_t)) {
            uint64_t word;
            std::memcpy(&word, at, sizeof(word));
            const auto product = static_cast<unsigned __int128>(hash_ ^ word) * 0xD6E8FEB86659FD93u;
            hash_ = static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
        }
        has_key_ = true;
    }

    const OverrideTable& table_;
    std::vector<int> places_;  // by slot: index into `uids`, -1 if not overridden
    std::vector<Next> next_;   // by slot: what is being set
    std::vector<int64_t> followed_;  // dims that symbols give, in the order of their uses
    std::vector<int> touched_;
    mutable std::string key_;
    mutable uint64_t hash_ = 0;
    mutable bool has_key_ = false;
    bool computes_nothing_ = false;
    bool has_own_strides_ = false;  // set() gave some
};

}  // namespace cudnn_bindgen
