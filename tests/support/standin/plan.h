/* What the files of the stand-in for libcudnn.so.9 share: plans, and the kernels they launch. */
#ifndef PLAN_H
#define PLAN_H

#include "standin.h"

#include <stdatomic.h>

enum { MAX_OPERANDS = 128, MAX_RANK = 8, DIGEST_PRIME = 65521 };

/* SCALE is no operand's role: an output that is multiplied in place. */
enum role { INPUT, OUTPUT, PART, SCALAR, OTHER, SCALE };
enum scalar { FLOAT, HALF, BFLOAT16, DOUBLE, INT32, INT64, SCALAR_COUNT };

struct operand {
    int64_t uid;
    enum role role;
    enum scalar type;
};

/* How a plan launches its work; __init__.py says what each does. */
#define LAUNCHES(X)                                                                                \
    X(plain) X(packed) X(split) X(fork) X(descriptor) X(offset) X(parity) X(swapped) X(hash)       \
    X(difference) X(grid) X(function) X(high32) X(host) X(event) X(alloc) X(nodes) X(pages)        \
    X(edges) X(first) X(tail) X(legacy) X(legacy_memset)
#define LAUNCH_ENUM(name) LAUNCH_##name,
enum launch { LAUNCHES(LAUNCH_ENUM) LAUNCH_COUNT };
extern const char *const launch_names[];

/* What a handle, a plan and a pack begin with. */
struct object {
    atomic_int magic;
    int kind; /* a descriptor type, or 0 for a handle */
    atomic_int users; /* calls that are inside it now */
    bool finalized;
    struct object *next; /* in the graveyard */
};

/* The geometry of an operand, which overrides may replace. */
struct declared {
    int64_t uid;
    size_t rank;
    int64_t dim[MAX_RANK], stride[MAX_RANK];
    bool fixed[MAX_RANK];  /* the dim must stay */
    bool steady[MAX_RANK]; /* the dim must not come to 1 or leave it */
};

struct plan {
    struct object object;
    struct handle *handle;
    char *text;
    int device;
    int64_t workspace, count;
    struct declared declared[MAX_OPERANDS]; /* none: the plan takes no overrides */
    size_t declared_count;
    int64_t sized_by, sized_axis; /* whose dim is the count; an axis below 0: nobody's */
    int64_t growth;               /* bytes of workspace for each element under overrides */
    size_t operand_count;
    struct operand operands[MAX_OPERANDS];
    enum launch launch;
    struct kernel *kernels;
    size_t kernel_count;
    atomic_long launches;
};

/* What a call's overrides, or the lack of them, make of the plan's count and workspace. */
struct extent {
    int64_t count, workspace;
    uint32_t digest; /* of all dims and strides: part of every result */
};

const struct standin_services *driver(void);

/* What stands behind the first `"key":`, or NULL. */
const char *find_value(const char *text, const char *key);
/* Returns what follows, or NULL for text that it cannot read. */
const char *scan_int(const char *text, int64_t *value);
bool scan_standin(const char *text, struct plan *plan);

/* The last parameter of each kernel; the others are what it points at, and 4-byte constants. */
enum { BODY_MAGIC = 0x424F4459, TAIL = 5, WORD_MAGIC = 0x51A0000, DESCRIPTOR = 128 };

struct body {
    uint32_t magic, launch; /* `launch` says how to read the pointers */
    int64_t count;
    int64_t fill_bytes; /* of the workspace, the last pointer */
    uint32_t fill, entry_count;
    uint64_t word; /* "hash" */
    uint32_t page; /* "high32" */
    uint32_t blocks;
    uint64_t digest; /* of shapes and strides */
    /* then the entries, then TAIL bytes */
};

struct entry {
    uint32_t role, type, pointer, reserved;
    double weight;
    uint64_t scalar; /* its value's bytes */
};

/* What host and device code must agree about. */
static inline uint64_t bit4(uint64_t address) { return address >> 4 & 1; }
static inline bool is_whole(enum launch launch, uint64_t address)
{
    return launch == LAUNCH_nodes   ? bit4(address) == 0
           : launch == LAUNCH_pages ? address % 4096 == 0
                                    : true;
}
static inline uint64_t offset_of(size_t pointer) { return 4096 + 16 * pointer; }
static inline uint64_t hash_of(uint64_t a, uint64_t b)
{
    return (a * 0x9E3779B97F4A7C15u) ^ b >> 3;
}
static inline uint64_t descriptor_word(size_t i) { return 0x1122334455667788u + i; }

CUresult device_code(const struct kernel_call *call);

/* Host side: at finalize, at destroy, and for each launch. */
bool make_kernels(struct plan *plan);
void kill_kernels(struct plan *plan);
void free_kernels(struct plan *plan);
/* pointers[o] belongs to operands[o]. */
struct pieces;
struct pieces *make_pieces(struct plan *plan, const struct extent *extent, void *const *pointers,
                           void *workspace);
CUresult submit_pieces(CUstream stream, const struct pieces *pieces);
void free_pieces(struct pieces *pieces);

#endif
