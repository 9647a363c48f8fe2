// What a graph's overrides may be: declared shapes, symbols, bounds.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace cudnn_bindgen {

// An operand as its graph declares it.
struct DeclaredShape {
    int64_t uid;
    int64_t bits;  // of one element
    bool is_output;
    std::vector<int64_t> dim, stride;

    // Axes that have a stride, the innermost first. One `follows` if its stride is just what the
    // axes inside of it span; the others are padded, and keep their stride.
    std::vector<int> order;
    std::vector<char> follows;
    // By axis: strides further out do not follow it (a symbol that keeps the declared ones).
    std::vector<char> keeps;

    int64_t most;  // elements whose bytes fit int64

    // Whether any stride follows the dim of this axis.
    bool has_followers(int axis) const {
        const auto at = std::find(order.begin(), order.end(), axis);
        return std::find(follows.begin() + (at - order.begin()), follows.end(), 1) !=
               follows.end() && at != order.end() && at + 1 != order.end();
    }

    // Decides the strides that follow from the dims inside of them, but those `given`; the others
    // stand in `to` already. Of an axis that `keeps` names the declared dim counts further out.
    // Returns -1, or the axis from which on no int64 holds them.
    int follow_dims(const int64_t* from, int64_t* to, const char* given, const char* keeps) const {
        int64_t running = 0;
        for (size_t index = 0; index < order.size(); ++index) {
            const int axis = order[index];
            const bool is_given = given && given[axis];
            const bool is_next = follows[index] && running;
            if (!is_given && is_next) to[axis] = running;
            const int64_t size = keeps && keeps[axis] ? dim[axis] : from[axis];
            if ((is_next || is_given || size > 1 || !running) &&
                __builtin_mul_overflow(to[axis], std::max<int64_t>(size, 1), &running)) {
                return axis;
            }
        }
        return -1;
    }

    void find_order() {  // as stride_order() of codegen/bind/overrides.py
        most = static_cast<int64_t>(
            std::min<__int128>(INT64_MAX, static_cast<__int128>(INT64_MAX) * 8 / bits));
        for (size_t axis = 0; axis < dim.size(); ++axis) {
            if (stride[axis] > 0) order.push_back(static_cast<int>(axis));
        }
        std::sort(order.begin(), order.end(), [&](int a, int b) {
            return stride[a] != stride[b] ? stride[a] < stride[b] : a > b;
        });
        __int128 running = 0;
        for (int axis : order) {
            const bool is_next = running == stride[axis];
            if (is_next || dim[axis] > 1 || !running) {
                running = static_cast<__int128>(stride[axis]) * dim[axis];
            }
            follows.push_back(is_next);
        }
        keeps.assign(dim.size(), false);
    }
};

struct SymbolStep {
    char operation;  // + * / (rounded up) % (up to a multiple)
    int64_t number;
};

struct SymbolUse {
    int slot, axis;
    std::vector<SymbolStep> steps;

    // Gives the dim for a symbol's number, which is not negative; false if no int64 holds it.
    bool follow(int64_t number, int64_t* dim) const {
        for (const SymbolStep& step : steps) {
            if (step.operation == '/' || step.operation == '%') {
                number = number / step.number + (number % step.number != 0);
            }
            if (step.operation == '+'
                    ? __builtin_add_overflow(number, step.number, &number)
                    : step.operation != '/' &&
                          __builtin_mul_overflow(number, step.number, &number)) {
                return false;
            }
        }
        *dim = number;
        return true;
    }
};

struct OverrideSymbol {
    bool is_packed;
    std::vector<SymbolUse> uses;
    std::vector<int> slots;  // of the uses, each once
    std::vector<int> moved;  // those of which strides follow this symbol's dims
};

// What a graph's overrides may be. Immutable once registered.
struct OverrideTable {
    std::vector<DeclaredShape> shapes;  // by slot
    std::vector<OverrideSymbol> symbols;
    std::vector<int> outputs;  // slots
    bool is_unbounded = false;
    void* graph = nullptr;  // whose table it is, for messages

    // Call when `shapes` and `symbols` are complete.
    void finish() {
        for (DeclaredShape& shape : shapes) shape.find_order();
        for (OverrideSymbol& symbol : symbols) {
            for (const SymbolUse& use : symbol.uses) {
                shapes[use.slot].keeps[use.axis] = !symbol.is_packed;
                const auto end = symbol.slots.end();
                if (std::find(symbol.slots.begin(), end, use.slot) == end) {
                    symbol.slots.push_back(use.slot);
                }
                if (symbol.is_packed && shapes[use.slot].has_followers(use.axis)) {
                    symbol.moved.push_back(use.slot);
                }
            }
        }
        for (size_t slot = 0; slot < shapes.size(); ++slot) {
            if (shapes[slot].is_output) outputs.push_back(static_cast<int>(slot));
        }
    }
};

}  // namespace cudnn_bindgen
