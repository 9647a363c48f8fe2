/* Execute-time overrides of shapes and strides in the stand-in for libcudnn.so.9. */
#ifndef OVERRIDES_H
#define OVERRIDES_H

#include "lists.h"
#include "plan.h"
#include "status.h"

enum { SHAPES, STRIDES, LIST_KINDS };

/* Of one variant pack. cuDNN 9.27 copies the vectors when they are set; nothing promises that, so
 * whatever happens to the caller's before the execution counts as a violation. */
struct overrides {
    int64_t *uids;
    size_t count;
    struct lists *lists[LIST_KINDS];
    const void *given[LIST_KINDS];
};

struct reason {
    char text[200];
};

cudnnStatus_t take_lists(struct overrides *overrides, int kind, const void *address,
                         struct reason *why);
/* What can be seen without a plan. */
cudnnStatus_t check_counts(const struct overrides *overrides, struct reason *why);
/* Against the plan, and against the pack's uids unless `bound` is NULL. */
cudnnStatus_t check_overrides(const struct plan *plan, const struct overrides *overrides,
                              const int64_t *bound, size_t bound_count, struct reason *why);
struct extent measure(const struct plan *plan, const struct overrides *overrides);
void log_overrides(const struct overrides *overrides);
void free_overrides(struct overrides *overrides);

#endif
