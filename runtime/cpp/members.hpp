// The members of a family, by key, and which of them a call means: docs/families.md.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "tensor_checks.hpp"

namespace cudnn_bindgen {

struct Place {
    int slot, axis;
};

// How many members fit the tensors of a call.
struct Fit {
    int whole = 0;   // members that fit all of them
    int first = -1;  // the first of those; if there is none, the member that fits most tensors
    int second = -1; // of `whole`, another
    bool is_clear = false;  // if there is none: no other member fits as many tensors
};

// Laid out once, when a module is imported. Keys are sorted, so that one is found without hashing.
struct Members {
    int width = 0;                            // numbers of a key
    std::vector<int64_t> keys;                // `width` of each member, in order
    std::vector<void*> graphs;                // of each member
    std::vector<const TensorRules*> rules;    // likewise
    std::vector<std::vector<Place>> places;   // dims that are a number of the key, of each number
    // Elements of each operand of each member; -1 where the caller decides how many. A tensor of
    // another number is not of that member, which most comparisons of layouts need not be for.
    std::vector<int64_t> elements;
    // On a line of its own: threads that alternate between keys write it.
    alignas(64) std::atomic<int> last{0};

    int count() const { return static_cast<int>(graphs.size()); }
    const int64_t* key_of(int member) const { return keys.data() + int64_t{member} * width; }

    // Once all else stands.
    void finish() {
        for (const TensorRules* rule : rules) {
            for (const TensorRule& operand : rule->operands) {
                const LayoutKind kind = operand.layout.kind;
                const bool is_fixed = kind == LayoutKind::kPlain || kind == LayoutKind::kSwapped;
                elements.push_back(is_fixed ? count_elements(operand.declared()) : -1);
            }
        }
    }

    // The member that has this key, or -1.
    int find(const int64_t* key) {
        const int guess = last.load(std::memory_order_relaxed);
        if (std::equal(key, key + width, key_of(guess))) return guess;
        int low = 0, high = count();
        while (low < high) {
            const int middle = low + (high - low) / 2;
            const int64_t* const other = key_of(middle);
            if (std::lexicographical_compare(other, other + width, key, key + width)) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        if (low == count() || !std::equal(key, key + width, key_of(low))) return -1;
        last.store(low, std::memory_order_relaxed);
        return low;
    }

    // Reads the key from tensors that have their axes as declared; false where none does.
    bool read_key(const TensorCall& call, int64_t* key) const {
        for (int number = 0; number < width; ++number) {
            const Place* found = nullptr;
            for (const Place& place : places[number]) {
                if (is_readable(call, place.slot)) {
                    found = &place;
                    break;
                }
            }
            if (!found) return false;
            key[number] = call.tensors[found->slot].shape[found->axis];
        }
        return true;
    }

    // Whether the tensors that a key is read from have the extents that this member declares.
    bool has_extents(const TensorCall& call, int member) const {
        for (const std::vector<Place>& at : places) {
            for (const Place& place : at) {
                if (!is_readable(call, place.slot)) continue;
                const Strided declared = rules[member]->operands[place.slot].declared();
                const int64_t* const shape = call.tensors[place.slot].shape;
                if (!std::equal(declared.dim, declared.dim + declared.rank, shape)) return false;
            }
        }
        return true;
    }

    // Compares all tensors with all members: for those that have other axes than declared.
    Fit fit(const TensorCall& call) const {
        const int operands = call.count();
        int64_t given[kMostOperands];
        for (int slot = 0; slot < operands; ++slot) {
            given[slot] = is_read(call, slot) ? count_elements(layout_of(call, slot)) : 0;
        }
        Fit fit;
        int most = 0;
        for (int member = 0; member < count(); ++member) {
            const int misses = count_misses(call, member, given);
            const int score = operands - misses;
            if (misses == 0) {
                if (fit.whole++ == 0) fit.first = member;
                else if (fit.second < 0) fit.second = member;
                fit.is_clear = false;
            } else if (fit.whole == 0 && score >= most) {
                fit.is_clear = score > most;
                fit.first = member;
                most = score;
            }
        }
        return fit;
    }

 private:
    static bool is_read(const TensorCall& call, int slot) {
        return call.given[slot] == kGivenTensor || call.given[slot] == kGivenReadOnly;
    }

    static Strided layout_of(const TensorCall& call, int slot) {
        const DLTensor& tensor = call.tensors[slot];
        return {tensor.shape, tensor.strides, tensor.ndim};
    }

    static int64_t count_elements(const Strided& layout) {
        int64_t count = 1;
        for (int axis = 0; axis < layout.rank; ++axis) {
            if (__builtin_mul_overflow(count, layout.dim[axis], &count)) return -1;
        }
        return count;
    }

    // All members have the same ranks and data types.
    bool is_readable(const TensorCall& call, int slot) const {
        const TensorRule& rule = rules[0]->operands[slot];
        return is_read(call, slot) &&
               call.tensors[slot].ndim == static_cast<int>(rule.dim.size()) &&
               detail::find_pack(rule, detail::type_of(call.tensors[slot])) == 1;
    }

    int count_misses(const TensorCall& call, int member, const int64_t* given) const {
        int misses = 0;
        const int operands = call.count();
        for (int slot = 0; slot < operands; ++slot) {
            if (!is_read(call, slot)) continue;
            const TensorRule& rule = rules[member]->operands[slot];
            // Of a data type that is refused later, the layout is compared as it stands.
            const int pack = std::max(1, detail::find_pack(rule, detail::type_of(call.tensors[slot])));
            const int64_t wanted = elements[int64_t{member} * operands + slot];
            // What packs several may round up.
            const bool is_other = pack == 1 && wanted >= 0 && wanted != given[slot];
            if (is_other || match_layout(rule.layout, rule.declared(), layout_of(call, slot), pack) !=
                                LayoutMatch::kSame) {
                ++misses;
            }
        }
        return misses;
    }
};

}  // namespace cudnn_bindgen
