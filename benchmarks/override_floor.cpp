// Shapes and strides for floor.c, which is C: cuDNN takes them as vectors of vectors.
//
// They are laid out once; a call writes its numbers in place, through the rows' addresses.
#include <cstddef>
#include <cstdint>
#include <vector>

using Lists = std::vector<std::vector<int64_t>>;

extern "C" {

// `rows` gets the address of each row; none moves until the lists are freed.
void* override_floor_make(int64_t count, const int64_t* ranks, int64_t** rows) {
    auto lists = new Lists;
    lists->reserve(count);
    for (int64_t index = 0; index < count; ++index) {
        rows[index] = lists->emplace_back(ranks[index]).data();
    }
    return lists;
}

void override_floor_free(void* lists) { delete static_cast<Lists*>(lists); }

}  // extern "C"
