// The only C++ of the stand-in for libcudnn.so.9: shapes and strides come as vectors of vectors.
#include "lists.h"

#include <cstring>
#include <new>
#include <vector>

#define EXPORT __attribute__((visibility("default")))

using Lists = std::vector<std::vector<int64_t>>;

struct lists {
    Lists items;
};

namespace {

enum { MOST = 4096 }; // more can only be something else taken for a vector

// What a vector is in libstdc++: looked at as bytes, before it is trusted to be one.
struct Bounds {
    uintptr_t begin, end, limit;
};
static_assert(sizeof(Lists) == sizeof(Bounds));
static_assert(sizeof(std::vector<int64_t>) == sizeof(Bounds));

lists_state look(uintptr_t address, size_t item, bool (*usable)(uintptr_t, size_t), Bounds* bounds)
{
    if (address % alignof(Bounds) != 0) {
        return LISTS_NONSENSE;
    }
    if (!usable(address, sizeof *bounds)) {
        return LISTS_UNREADABLE;
    }
    std::memcpy(bounds, reinterpret_cast<const void*>(address), sizeof *bounds);
    size_t size = bounds->end - bounds->begin;
    if (bounds->begin > bounds->end || bounds->end > bounds->limit || size % item != 0 ||
        size / item > MOST || bounds->begin % alignof(int64_t) != 0) {
        return LISTS_NONSENSE;
    }
    return size == 0 || usable(bounds->begin, size) ? LISTS_GOOD : LISTS_UNREADABLE;
}

const Lists& at(const void* address)
{
    return *static_cast<const Lists*>(address);
}

} // namespace

extern "C" {

lists_state look_at_lists(const void* address, bool (*usable)(uintptr_t, size_t))
{
    Bounds outer, inner;
    auto state = look(reinterpret_cast<uintptr_t>(address), sizeof(Bounds), usable, &outer);
    for (auto place = outer.begin; state == LISTS_GOOD && place < outer.end;
         place += sizeof inner) {
        state = look(place, sizeof(int64_t), usable, &inner);
    }
    return state;
}

lists* copy_lists(const void* address)
{
    try {
        return new lists{at(address)};
    } catch (const std::bad_alloc&) {
        return nullptr;
    }
}

bool same_lists(const lists* lists, const void* address)
{
    return lists->items == at(address);
}

size_t count_lists(const lists* lists)
{
    return lists->items.size();
}

size_t rank_of(const lists* lists, size_t index)
{
    return lists->items[index].size();
}

const int64_t* list_at(const lists* lists, size_t index)
{
    return lists->items[index].data();
}

void free_lists(lists* lists)
{
    delete lists;
}

// For the tests: lists such as a C++ caller has.

EXPORT void* standin_make_lists(const int64_t* items, const size_t* ranks, size_t count)
{
    auto made = new Lists;
    for (size_t i = 0; i < count; items += ranks[i++]) {
        made->emplace_back(items, items + ranks[i]);
    }
    return made;
}

EXPORT void standin_set_list_item(void* address, size_t list, size_t index, int64_t value)
{
    (*static_cast<Lists*>(address))[list][index] = value;
}

EXPORT void standin_free_lists(void* address)
{
    delete static_cast<Lists*>(address);
}
}
