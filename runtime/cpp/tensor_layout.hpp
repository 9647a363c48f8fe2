// Whether a tensor lies in memory as a graph declares the operand: docs/tensors.md, "Layout".
// Dims and strides come from anywhere: whatever no int64 holds is another layout.
#pragma once

#include <cstdint>

namespace cudnn_bindgen {

enum class LayoutKind : int { kPlain, kSwapped, kRagged, kPaged, kDense };

struct LayoutRule {
    LayoutKind kind;
    int free_axis;  // of any extent: tokens (kRagged), pages (kPaged: 0); else -1
};

// Strides are in elements. The arrays belong to the caller.
struct Strided {
    const int64_t* dim;
    const int64_t* stride;
    int rank;
};

enum class LayoutMatch : int { kSame, kOtherOrder, kOther };

enum : int { kMaxRank = 64 };  // of what is compared at all

namespace detail {

struct Axis {
    int64_t dim, stride;
};

// Left uninitialised: zeroing it would cost more than most comparisons.
struct Axes {
    int count;
    Axis axis[kMaxRank + 1];  // one more than any tensor has: of `express` and `free_axis_of`

    void add(int64_t dim, int64_t stride) { axis[count++] = {dim, stride}; }
};

inline bool is_ranked(const Strided& layout) { return layout.rank >= 0 && layout.rank <= kMaxRank; }

// The smallest extent, but 1 of a tensor without axes.
inline int64_t least_dim(const Strided& layout) {
    int64_t least = 1;
    for (int axis = 0; axis < layout.rank; ++axis) {
        if (layout.dim[axis] < least) least = layout.dim[axis];
    }
    return least;
}

// Leaves out axes of extent 1: their strides say nothing, and may be absurd.
inline void squeeze(const Strided& layout, Axes* axes) {
    axes->count = 0;
    for (int axis = 0; axis < layout.rank; ++axis) {
        if (layout.dim[axis] != 1) axes->add(layout.dim[axis], layout.stride[axis]);
    }
}

// The same with the last two axes in the other order.
inline void squeeze_swapped(const Strided& layout, Axes* axes) {
    axes->count = 0;
    for (int axis = 0; axis < layout.rank; ++axis) {
        const bool is_swapped = layout.rank >= 2 && axis >= layout.rank - 2;
        const int from = is_swapped ? 2 * layout.rank - 3 - axis : axis;
        if (layout.dim[from] != 1) axes->add(layout.dim[from], layout.stride[from]);
    }
}

// Innermost first. Of equal strides the smaller extent first, so that equal sets end up equal.
inline void sort(Axes* axes) {
    for (int end = 1; end < axes->count; ++end) {
        const Axis moved = axes->axis[end];
        int at = end;
        for (; at > 0; --at) {
            const Axis& before = axes->axis[at - 1];
            if (before.stride < moved.stride ||
                (before.stride == moved.stride && before.dim <= moved.dim)) {
                break;
            }
            axes->axis[at] = before;
        }
        axes->axis[at] = moved;
    }
}

// Turns axes of elements that hold `pack` declared ones each into axes of declared ones.
inline bool express(int pack, Axes* axes) {
    int inner = axes->count - 1;
    while (inner >= 0 && axes->axis[inner].stride != 1) --inner;
    for (int index = 0; index < axes->count; ++index) {
        int64_t* const grown = index == inner ? &axes->axis[index].dim : &axes->axis[index].stride;
        if (__builtin_mul_overflow(*grown, pack, grown)) return false;
    }
    if (inner < 0) axes->add(pack, 1);
    return true;
}

inline LayoutMatch compare_in_order(const Axes& declared, const Axes& tensor) {
    if (declared.count != tensor.count) return LayoutMatch::kOther;
    bool is_same = true;
    for (int index = 0; index < declared.count; ++index) {
        if (declared.axis[index].dim != tensor.axis[index].dim) return LayoutMatch::kOther;
        is_same &= declared.axis[index].stride == tensor.axis[index].stride;
    }
    return is_same ? LayoutMatch::kSame : LayoutMatch::kOtherOrder;
}

// Whether `whole` is exactly the axes of `parts` from `*next` on; moves it past them.
inline bool take(Axis whole, const Axes& parts, int* next) {
    while (*next < parts.count) {
        const Axis part = parts.axis[(*next)++];
        if (part.stride != whole.stride) return false;
        if (part.dim == whole.dim) return true;
        // A larger part would cut across `whole`.
        if (whole.stride == 0 || whole.dim % part.dim) return false;
        whole.dim /= part.dim;
        if (__builtin_mul_overflow(whole.stride, part.dim, &whole.stride)) return false;
    }
    return false;
}

// Whether sorted axes are the same memory: each axis of one side is one or several of the other.
// Axes that interleave in memory are compared one by one, as rule 2 says: no search for splits.
inline bool is_same_memory(const Axes& declared, const Axes& tensor) {
    if (declared.count && declared.axis[0].stride < 0) return false;
    int left = 0, right = 0;
    while (left < declared.count && right < tensor.count) {
        const bool is_split = declared.axis[left].dim >= tensor.axis[right].dim;
        if (is_split ? !take(declared.axis[left++], tensor, &right)
                     : !take(tensor.axis[right++], declared, &left)) {
            return false;
        }
    }
    return left == declared.count && right == tensor.count;
}

inline bool count_elements(const Axes& axes, int64_t* count) {
    *count = 1;
    for (int index = 0; index < axes.count; ++index) {
        if (__builtin_mul_overflow(*count, axes.axis[index].dim, count)) return false;
    }
    return true;
}

inline bool is_dense(const Axes& sorted) {
    int64_t running = 1;
    for (int index = 0; index < sorted.count; ++index) {
        if (sorted.axis[index].stride != running) return false;
        if (__builtin_mul_overflow(running, sorted.axis[index].dim, &running)) return false;
    }
    return true;
}

// What axes with strides up to this one span; INT64_MAX if it is more than that.
inline int64_t span_inside(const Axes& axes, int64_t stride) {
    __int128 span = 1;
    for (int index = 0; index < axes.count; ++index) {
        const Axis& axis = axes.axis[index];
        if (axis.stride <= stride) span += static_cast<__int128>(axis.dim - 1) * axis.stride;
        if (span > INT64_MAX) return INT64_MAX;
    }
    return static_cast<int64_t>(span);
}

// Finds the stride of a free axis that is declared with one element, so that its stride says
// nothing. It is outermost, and ends where the tensor's outermost axis does.
inline bool find_free_stride(const Axes& fixed, const Axes& sorted, int64_t count,
                             int64_t* stride) {
    const Axis& outermost = sorted.axis[sorted.count - 1];
    const __int128 end = static_cast<__int128>(outermost.dim) * outermost.stride;
    if (end % count || end / count > INT64_MAX) return false;
    *stride = static_cast<int64_t>(end / count);
    return *stride >= span_inside(fixed, INT64_MAX);
}

// Whether a free axis ends before the next fixed one further out begins.
inline bool has_room(const Axes& fixed, const Axis& free) {
    int64_t room = INT64_MAX;
    for (int index = 0; index < fixed.count; ++index) {
        const int64_t stride = fixed.axis[index].stride;
        if (stride > free.stride && stride < room) room = stride;
    }
    const __int128 reach = static_cast<__int128>(free.dim - 1) * free.stride;
    return reach + span_inside(fixed, free.stride) <= room;
}

// Writes the declared axes with as many tokens or pages as the tensor holds.
inline bool free_axis_of(const LayoutRule& rule, const Strided& declared, const Axes& sorted,
                         Axes* axes) {
    axes->count = 0;
    for (int axis = 0; axis < declared.rank; ++axis) {
        // Ragged offsets say where a sequence begins, not the batch axis.
        const bool is_ignored = axis == 0 && rule.kind == LayoutKind::kRagged;
        if (axis == rule.free_axis || is_ignored || declared.dim[axis] == 1) continue;
        if (declared.stride[axis] < 0) return false;
        axes->add(declared.dim[axis], declared.stride[axis]);
    }
    int64_t fixed, all;
    if (!count_elements(*axes, &fixed) || !count_elements(sorted, &all) || all % fixed) {
        return false;
    }
    const int64_t count = all / fixed;
    if (count == 1) return true;
    if (rule.free_axis < 0 || rule.free_axis >= declared.rank) return false;
    int64_t stride = declared.stride[rule.free_axis];
    if (declared.dim[rule.free_axis] == 1 && !find_free_stride(*axes, sorted, count, &stride)) {
        return false;
    }
    const Axis free = {count, stride};
    if (!has_room(*axes, free)) return false;
    axes->add(free.dim, free.stride);
    return true;
}

// What `match_layout` does if the axes are not the declared ones. Apart, to keep that one small.
__attribute__((noinline)) inline LayoutMatch match_other(const LayoutRule& rule,
                                                         const Strided& declared,
                                                         const Strided& tensor, int pack) {
    const int64_t least = least_dim(declared), least_given = least_dim(tensor);
    if (least < 0 || least_given < 0 || pack < 1) return LayoutMatch::kOther;
    if (least == 0 || least_given == 0) {
        return least == least_given ? LayoutMatch::kSame : LayoutMatch::kOther;
    }
    Axes wanted, given;
    squeeze(declared, &wanted);
    squeeze(tensor, &given);
    if (pack > 1 && !express(pack, &given)) return LayoutMatch::kOther;
    LayoutMatch match = compare_in_order(wanted, given);
    if (match == LayoutMatch::kSame) return match;
    const LayoutKind kind = rule.kind;
    if (kind == LayoutKind::kSwapped) {
        squeeze_swapped(declared, &wanted);
        match = compare_in_order(wanted, given);
    }
    if ((kind == LayoutKind::kPlain || kind == LayoutKind::kSwapped) &&
        match != LayoutMatch::kOther) {
        return match;
    }
    sort(&given);
    bool is_same;
    if (kind == LayoutKind::kDense) {
        int64_t least_count, count;
        is_same = is_dense(given) && count_elements(wanted, &least_count) &&
                  count_elements(given, &count) && count >= least_count;
    } else {
        is_same = (kind != LayoutKind::kRagged && kind != LayoutKind::kPaged) ||
                  free_axis_of(rule, declared, given, &wanted);
        if (is_same) {
            sort(&wanted);
            is_same = is_same_memory(wanted, given);
        }
    }
    return is_same ? LayoutMatch::kSame : LayoutMatch::kOther;
}

}  // namespace detail

// `pack`: how many declared elements one element of `tensor` holds (2: FP4 in bytes, 8: bit masks
// in bytes, else 1).
inline LayoutMatch match_layout(const LayoutRule& rule, const Strided& declared,
                                const Strided& tensor, int pack) {
    if (!detail::is_ranked(declared) || !detail::is_ranked(tensor)) return LayoutMatch::kOther;
    if (pack == 1) {
        int left = 0, right = 0;
        for (;; ++left, ++right) {
            while (left < declared.rank && declared.dim[left] == 1) ++left;
            while (right < tensor.rank && tensor.dim[right] == 1) ++right;
            if (left == declared.rank || right == tensor.rank) break;
            if (declared.dim[left] != tensor.dim[right] ||
                declared.stride[left] != tensor.stride[right]) {
                break;
            }
        }
        if (left == declared.rank && right == tensor.rank) return LayoutMatch::kSame;
    }
    return detail::match_other(rule, declared, tensor, pack);
}

}  // namespace cudnn_bindgen
