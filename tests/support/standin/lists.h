/* Vectors of vectors of int64_t, as a caller of cuDNN gives shapes and strides: for C. */
#ifndef LISTS_H
#define LISTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct lists; /* a copy of the caller's */

enum lists_state { LISTS_GOOD, LISTS_UNREADABLE, LISTS_NONSENSE };

/* Whether a `std::vector<std::vector<int64_t>>` stands at the address. */
enum lists_state look_at_lists(const void *address, bool (*usable)(uintptr_t, size_t));
/* Of lists that were looked at; NULL when there is no memory. */
struct lists *copy_lists(const void *address);
/* Whether the lists at the address, looked at again, are still what was copied. */
bool same_lists(const struct lists *lists, const void *address);
size_t count_lists(const struct lists *lists);
size_t rank_of(const struct lists *lists, size_t index);
const int64_t *list_at(const struct lists *lists, size_t index);
void free_lists(struct lists *lists);

#ifdef __cplusplus
}
#endif

#endif
