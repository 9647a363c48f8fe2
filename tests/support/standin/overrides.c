/* Overrides of the stand-in for libcudnn.so.9: what is refused, and what they make of a call. */
#include "overrides.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const names[LIST_KINDS] = {"shapes", "strides"};

#define REFUSE(status, ...) return snprintf(why->text, sizeof why->text, __VA_ARGS__), status

cudnnStatus_t take_lists(struct overrides *overrides, int kind, const void *address,
                         struct reason *why)
{
    enum lists_state state = look_at_lists(address, driver()->usable);
    if (state == LISTS_NONSENSE) { /* an unreadable address has been counted */
        driver()->violate(VIOLATION_OVERRIDES);
    }
    if (state != LISTS_GOOD) {
        REFUSE(CUDNN_STATUS_BAD_PARAM, "override %s: no vector of vectors at %p", names[kind],
               address);
    }
    struct lists *copy = copy_lists(address);
    if (copy == NULL) {
        REFUSE(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
    }
    free_lists(overrides->lists[kind]);
    overrides->lists[kind] = copy;
    overrides->given[kind] = address;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t check_counts(const struct overrides *overrides, struct reason *why)
{
    for (int kind = 0; kind < LIST_KINDS; kind++) {
        size_t count = overrides->lists[kind] == NULL ? 0 : count_lists(overrides->lists[kind]);
        if (count != overrides->count) {
            REFUSE(CUDNN_STATUS_BAD_PARAM, "variant pack: %zu override uids, but %zu %s",
                   overrides->count, count, names[kind]);
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

static const struct declared *find_declared(const struct plan *plan, int64_t uid)
{
    for (size_t o = 0; o < plan->declared_count; o++) {
        if (plan->declared[o].uid == uid) {
            return &plan->declared[o];
        }
    }
    return NULL;
}

static bool holds(const int64_t *uids, size_t count, int64_t uid)
{
    for (size_t i = 0; i < count; i++) {
        if (uids[i] == uid) {
            return true;
        }
    }
    return false;
}

static cudnnStatus_t check_dims(const struct declared *declared, const int64_t *dim,
                                struct reason *why)
{
    intmax_t uid = (intmax_t)declared->uid;
    for (size_t axis = 0; axis < declared->rank; axis++) {
        intmax_t now = (intmax_t)dim[axis], then = (intmax_t)declared->dim[axis];
        if (now < 0) {
            REFUSE(CUDNN_STATUS_BAD_PARAM, "override of uid %jd: dim %zu is %jd", uid, axis, now);
        }
        if (declared->fixed[axis] && now != then) {
            REFUSE(CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
                   "override of uid %jd: dim %zu is %jd, but it was compiled for %jd", uid, axis,
                   now, then);
        }
        if (declared->steady[axis] && (now == 1) != (then == 1)) {
            REFUSE(CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE,
                   "override of uid %jd: dim %zu was compiled for %jd, %jd crosses 1", uid, axis,
                   then, now);
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Whoever changes the lists, or frees them, changes what a cuDNN that reads them late would see. */
static void look_again(const struct overrides *overrides)
{
    for (int kind = 0; kind < LIST_KINDS; kind++) {
        const void *given = overrides->given[kind];
        if (look_at_lists(given, driver()->usable) != LISTS_GOOD ||
            !same_lists(overrides->lists[kind], given)) {
            driver()->violate(VIOLATION_OVERRIDES);
        }
    }
}

cudnnStatus_t check_overrides(const struct plan *plan, const struct overrides *overrides,
                              const int64_t *bound, size_t bound_count, struct reason *why)
{
    if (overrides->count == 0) {
        return CUDNN_STATUS_SUCCESS;
    }
    look_again(overrides);
    if (plan->declared_count == 0) {
        REFUSE(CUDNN_STATUS_NOT_SUPPORTED, "the plan was not built for override shapes");
    }
    for (size_t i = 0; i < overrides->count; i++) {
        int64_t uid = overrides->uids[i];
        const struct declared *declared = find_declared(plan, uid);
        if (holds(overrides->uids, i, uid)) {
            REFUSE(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, "override of uid %jd: twice",
                   (intmax_t)uid);
        }
        if (declared == NULL || (bound != NULL && !holds(bound, bound_count, uid))) {
            REFUSE(CUDNN_STATUS_BAD_PARAM, "override of uid %jd: %s", (intmax_t)uid,
                   declared == NULL ? "not in the plan" : "not in the variant pack");
        }
        for (int kind = 0; kind < LIST_KINDS; kind++) {
            size_t rank = rank_of(overrides->lists[kind], i);
            if (rank != declared->rank) {
                REFUSE(CUDNN_STATUS_BAD_PARAM, "override of uid %jd: %zu %s, but its rank is %zu",
                       (intmax_t)uid, rank, names[kind], declared->rank);
            }
        }
        cudnnStatus_t status = check_dims(declared, list_at(overrides->lists[SHAPES], i), why);
        if (status != CUDNN_STATUS_SUCCESS) {
            return status;
        }
    }
    return CUDNN_STATUS_SUCCESS;
}

/* overrides.py computes the same. */
static int64_t remainder_of(int64_t value)
{
    return (value % DIGEST_PRIME + DIGEST_PRIME) % DIGEST_PRIME;
}

struct extent measure(const struct plan *plan, const struct overrides *overrides)
{
    struct extent extent = {.count = plan->count, .workspace = plan->workspace};
    int64_t digest = 0;
    for (size_t o = 0; o < plan->declared_count; o++) {
        const struct declared *declared = &plan->declared[o];
        const int64_t *dim = declared->dim, *stride = declared->stride;
        for (size_t i = 0; i < overrides->count; i++) {
            if (overrides->uids[i] == declared->uid) {
                dim = list_at(overrides->lists[SHAPES], i);
                stride = list_at(overrides->lists[STRIDES], i);
            }
        }
        for (size_t axis = 0; axis < declared->rank; axis++) {
            int64_t weight = (int64_t)(2 * axis + 1);
            int64_t term = weight * remainder_of(dim[axis]) +
                           (weight + 1) * remainder_of(stride[axis]);
            digest = remainder_of(digest + (int64_t)(o + 1) * term);
        }
        if (plan->sized_by == declared->uid && plan->sized_axis >= 0) {
            extent.count = dim[plan->sized_axis];
        }
    }
    extent.digest = (uint32_t)digest;
    if (overrides->count > 0 && plan->growth > 0) {
        extent.workspace = plan->growth * extent.count + 32 * (digest % 5);
    }
    return extent;
}

/* "override UID dim,dim,... stride,stride,..." */
void log_overrides(const struct overrides *overrides)
{
    for (size_t i = 0; i < overrides->count; i++) {
        char text[LIST_KINDS][80] = {"", ""};
        for (int kind = 0; kind < LIST_KINDS; kind++) {
            const int64_t *list = list_at(overrides->lists[kind], i);
            size_t length = 0;
            for (size_t axis = 0; axis < rank_of(overrides->lists[kind], i); axis++) {
                if (length < sizeof text[kind]) {
                    length += (size_t)snprintf(text[kind] + length, sizeof text[kind] - length,
                                               axis == 0 ? "%jd" : ",%jd", (intmax_t)list[axis]);
                }
            }
        }
        driver()->log("override %jd %s %s", (intmax_t)overrides->uids[i], text[SHAPES],
                      text[STRIDES]);
    }
}

void free_overrides(struct overrides *overrides)
{
    free(overrides->uids);
    for (int kind = 0; kind < LIST_KINDS; kind++) {
        free_lists(overrides->lists[kind]);
    }
}
