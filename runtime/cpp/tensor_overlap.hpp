// Whether two strided tensors share a byte. Exact, because packed buffers interleave: the slices of
// one [b, s, 3, h, d] buffer span each other and share nothing. Where that would take too long, or
// rows of FP4 begin inside a byte, spans that overlap are taken to share one.
#pragma once

#include <cstdint>

#include "tensor_layout.hpp"

namespace cudnn_bindgen {

struct Region {
    uintptr_t address;
    Strided layout;
    int64_t element_bits;  // of one element of the tensor, may be 4
};

// kSame: the same address, element width and set of axes. Which axis is which is not looked at: a
// square matrix is the same memory as its transpose.
enum class Overlap : int { kApart, kSame, kShared };

// The first and the last byte of a region; the other way round if it has no elements.
struct Span {
    uintptr_t first, last;
};

namespace detail {

// No memory is larger, and sums of a few of these fit int64.
enum : int64_t { kMaxBits = int64_t{1} << 60 };

struct Reach {
    bool is_empty, is_bounded;
    int64_t low, high;  // bits from the address on, `high` not included
};

inline Reach find_reach(const Region& region) {
    Reach reach = {false, is_ranked(region.layout) && region.element_bits > 0, 0,
                   region.element_bits};
    for (int axis = 0; axis < region.layout.rank; ++axis) {
        const int64_t dim = region.layout.dim[axis];
        if (dim == 0) reach.is_empty = true;
        if (dim < 0) reach.is_bounded = false;
        if (dim <= 1 || !reach.is_bounded) continue;
        int64_t bits;
        if (__builtin_mul_overflow(dim - 1, region.layout.stride[axis], &bits) ||
            __builtin_mul_overflow(bits, region.element_bits, &bits) ||
            __builtin_add_overflow(bits, bits < 0 ? reach.low : reach.high,
                                   bits < 0 ? &reach.low : &reach.high)) {
            reach.is_bounded = false;
        }
    }
    if (reach.low < -kMaxBits || reach.high > kMaxBits) reach.is_bounded = false;
    return reach;
}

// >> rounds down, for negative numbers, too.
inline Span find_span(const Region& region, const Reach& reach) {
    if (reach.is_empty) return {UINTPTR_MAX, 0};
    if (!reach.is_bounded) return {0, UINTPTR_MAX};
    const auto below = static_cast<uintptr_t>(-(reach.low >> 3));
    const auto above = static_cast<uintptr_t>((reach.high - 1) >> 3);
    return {region.address < below ? 0 : region.address - below,
            region.address > UINTPTR_MAX - above ? UINTPTR_MAX : region.address + above};
}

// A bounded region as blocks of `bytes` at `start + sum(c * stride)`, 0 <= c < dim, all in bytes.
struct Blocks {
    int64_t start, bytes;
    Axes axes;
};

// False if blocks of sub-byte elements do not all begin at the same bit of a byte.
inline bool find_blocks(const Region& region, Blocks* blocks) {
    Axes axes;
    squeeze(region.layout, &axes);
    int64_t start = 0, bits = region.element_bits;
    for (int index = 0; index < axes.count; ++index) {
        Axis& axis = axes.axis[index];
        axis.stride *= region.element_bits;
        if (axis.stride < 0) {
            start += (axis.dim - 1) * axis.stride;
            axis.stride = -axis.stride;
        }
    }
    sort(&axes);
    int inner = 0;
    for (; inner < axes.count && axes.axis[inner].stride <= bits; ++inner) {
        bits += (axes.axis[inner].dim - 1) * axes.axis[inner].stride;
    }
    blocks->start = start >> 3;
    blocks->bytes = ((start + bits - 1) >> 3) - blocks->start + 1;
    blocks->axes.count = 0;
    for (; inner < axes.count; ++inner) {
        if (axes.axis[inner].stride % 8) return false;
        blocks->axes.add(axes.axis[inner].dim, axes.axis[inner].stride / 8);
    }
    return true;
}

// Looks for numbers c between `low` and `high` of each term, so that the sum of all c * step lies
// between `least` and `most`.
class Search {
  public:
    Search(int64_t least, int64_t most) : least_(least), most_(most) {}

    // Steps must come in ascending order.
    void add(int64_t step, int64_t low, int64_t high) {
        if (!count_ && step <= most_ - least_ + 1) {  // windows that touch are one window
            least_ -= high * step;
            most_ -= low * step;
            return;
        }
        if (count_) {
            Term& last = terms_[count_ - 1];
            if (step % last.step == 0 && step / last.step <= last.high - last.low + 1) {
                last.low += low * (step / last.step);  // as one mixed-radix number
                last.high += high * (step / last.step);
                return;
            }
        }
        terms_[count_++] = {step, low, high, 0, 0};
    }

    bool has_solution() {
        for (int index = 1; index < count_; ++index) {
            const Term& inner = terms_[index - 1];
            terms_[index].rest_low = inner.rest_low + inner.low * inner.step;
            terms_[index].rest_high = inner.rest_high + inner.high * inner.step;
        }
        return reaches(count_, 0);
    }

  private:
    struct Term {
        int64_t step, low, high;
        int64_t rest_low, rest_high;  // what all smaller terms may add
    };

    // The largest step first: few of its numbers can be made good by the others.
    bool reaches(int count, int64_t sum) {
        if (!count) return least_ <= sum && sum <= most_;
        const Term& term = terms_[count - 1];
        int64_t from = divide_up(least_ - term.rest_high - sum, term.step);
        int64_t to = -divide_up(-(most_ - term.rest_low - sum), term.step);
        if (from < term.low) from = term.low;
        if (to > term.high) to = term.high;
        for (int64_t number = from; number <= to; ++number) {
            if (--steps_left_ < 0) return true;  // not worth more of a call's time
            if (reaches(count - 1, sum + number * term.step)) return true;
        }
        return false;
    }

    static int64_t divide_up(int64_t number, int64_t by) {
        return number / by + (number % by > 0);
    }

    Term terms_[2 * kMaxRank];
    int count_ = 0;
    int steps_left_ = 10000;
    int64_t least_, most_;
};

inline bool share_a_byte(const Region& a, const Region& b) {
    Blocks left, right;
    if (!find_blocks(a, &left) || !find_blocks(b, &right)) return true;
    // Spans overlap, so that the difference fits.
    const int64_t ahead = static_cast<int64_t>(a.address - b.address) + left.start - right.start;
    Search search(-(left.bytes - 1) - ahead, right.bytes - 1 - ahead);
    int one = 0, other = 0;
    while (one < left.axes.count || other < right.axes.count) {
        if (other == right.axes.count ||
            (one < left.axes.count &&
             left.axes.axis[one].stride <= right.axes.axis[other].stride)) {
            const Axis& axis = left.axes.axis[one++];
            search.add(axis.stride, 0, axis.dim - 1);
        } else {
            const Axis& axis = right.axes.axis[other++];
            search.add(axis.stride, 1 - axis.dim, 0);
        }
    }
    return search.has_solution();
}

inline bool is_same_region(const Region& a, const Region& b) {
    if (a.address != b.address || a.element_bits != b.element_bits) return false;
    Axes left, right;
    squeeze(a.layout, &left);
    squeeze(b.layout, &right);
    sort(&left);
    sort(&right);
    return compare_in_order(left, right) == LayoutMatch::kSame;
}

__attribute__((noinline)) inline Overlap find_overlap_inside(const Region& a, const Region& b) {
    const Reach left = find_reach(a), right = find_reach(b);
    if (left.is_empty || right.is_empty) return Overlap::kApart;
    if (!left.is_bounded || !right.is_bounded) return Overlap::kShared;
    if (is_same_region(a, b)) return Overlap::kSame;
    return share_a_byte(a, b) ? Overlap::kShared : Overlap::kApart;
}

}  // namespace detail

// Of a region that no memory could hold: all of it.
inline Span find_span(const Region& region) {
    return detail::find_span(region, detail::find_reach(region));
}

inline bool are_apart(const Span& a, const Span& b) {
    return a.last < b.first || b.last < a.first;
}

// Where many regions are compared, find their spans once and ask only about those not apart.
inline Overlap find_overlap(const Region& a, const Region& b) {
    if (are_apart(find_span(a), find_span(b))) return Overlap::kApart;
    return detail::find_overlap_inside(a, b);
}

}  // namespace cudnn_bindgen
