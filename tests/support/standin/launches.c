/* Launches of the stand-in for libcudnn.so.9: which kernels a plan has, and what is in them. */
#include "plan.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAUNCH_NAME(name) #name,
const char *const launch_names[] = {LAUNCHES(LAUNCH_NAME)};

/* Few threads where overrides may change the count, so that the grid follows small changes. */
enum { THREADS = 128, FEW_THREADS = 4, WORKSPACE = -1, FINAL_FILL = 0xA5, FIRST_FILL = 0x5A };

struct kernel {
    struct function *functions[2]; /* the second one only where "function" chooses */
    bool is_main;                  /* the one that the plan's kind of launch is about */
    struct entry entries[2 * MAX_OPERANDS];
    size_t entry_count;
    int pointers[MAX_OPERANDS + 1]; /* positions of operands, or WORKSPACE */
    size_t pointer_count;
    int operands[2 * MAX_OPERANDS]; /* by entry */
    bool fills;
    uint32_t fill;
    struct parameter *parameters;
    size_t parameter_count, size;
};

struct pieces {
    size_t count;
    bool leaves; /* the stream, with its last node */
    struct launch_node nodes[MAX_OPERANDS + 4];
};

struct builder {
    struct pieces *pieces;
    const struct plan *plan;
    const struct extent *extent;
    void *const *operands;
    void *workspace;
    bool failed;
};

/* Making kernels */

static void add_entry(struct kernel *kernel, const struct plan *plan, size_t operand,
                      enum role role, double weight)
{
    struct entry *entry = &kernel->entries[kernel->entry_count];
    kernel->operands[kernel->entry_count++] = (int)operand;
    *entry = (struct entry){.role = role, .type = plan->operands[operand].type, .weight = weight};
    if (role != SCALAR) {
        entry->pointer = (uint32_t)kernel->pointer_count;
        kernel->pointers[kernel->pointer_count++] = (int)operand;
    }
}

/* Reads all inputs, scalars and parts, and writes all outputs: weighted, or the bare sum. */
static void add_sum(struct kernel *kernel, const struct plan *plan, bool weighted)
{
    static const enum role order[] = {INPUT, SCALAR, PART, OUTPUT};
    for (size_t r = 0; r < sizeof order / sizeof *order; r++) {
        int position = 0;
        for (size_t o = 0; o < plan->operand_count; o++) {
            if (plan->operands[o].role != order[r]) {
                continue;
            }
            double weight = order[r] == INPUT    ? (position + 1) * (position + 1)
                            : order[r] == SCALAR ? 100 + position
                            : order[r] == PART   ? 1000 + position
                            : weighted           ? position + 1
                                                 : 1;
            add_entry(kernel, plan, o, order[r], weight);
            position++;
        }
    }
}

/* Multiplies outputs in place: all, or the one at `only`. */
static void add_scale(struct kernel *kernel, const struct plan *plan, int only)
{
    int position = 0;
    for (size_t o = 0; o < plan->operand_count; o++) {
        if (plan->operands[o].role == OUTPUT) {
            if (only < 0 || only == position) {
                add_entry(kernel, plan, o, SCALE, position + 1);
            }
            position++;
        }
    }
}

static void add_fill(struct kernel *kernel, const struct plan *plan, uint32_t fill)
{
    if (plan->workspace > 0 || plan->growth > 0) {
        kernel->fills = true;
        kernel->fill = fill;
        kernel->pointers[kernel->pointer_count++] = WORKSPACE;
    }
}

static void add_parameter(struct kernel *kernel, size_t size, size_t alignment)
{
    size_t offset = (kernel->size + alignment - 1) / alignment * alignment;
    kernel->parameters[kernel->parameter_count++] = (struct parameter){offset, size};
    kernel->size = offset + size;
}

/* Pointers, after each third one from the first a 4-byte constant, and the body. */
static bool finish_kernel(struct plan *plan, struct kernel *kernel, const char *part)
{
    char name[64];
    bool described = plan->launch == LAUNCH_descriptor;
    kernel->parameters = calloc(2 * kernel->pointer_count + 1, sizeof *kernel->parameters);
    if (kernel->parameters == NULL) {
        return false;
    }
    for (size_t i = 0; i < kernel->pointer_count; i++) {
        add_parameter(kernel, described ? DESCRIPTOR : 8, described ? 64 : 8);
        if (i % 3 == 0) {
            add_parameter(kernel, 4, 4);
        }
    }
    add_parameter(kernel,
                  sizeof(struct body) + kernel->entry_count * sizeof(struct entry) + TAIL, 8);
    kernel->is_main = kernel == plan->kernels;
    for (int variant = 0; variant < (plan->launch == LAUNCH_function ? 2 : 1); variant++) {
        snprintf(name, sizeof name, "standin_%s_%s%s", launch_names[plan->launch], part,
                 variant == 0 ? "" : "_unaligned");
        kernel->functions[variant] = driver()->make_function(
            name, described, kernel->parameters, kernel->parameter_count, device_code, variant);
        if (kernel->functions[variant] == NULL) {
            return false;
        }
    }
    return true;
}

static size_t count_outputs(const struct plan *plan)
{
    size_t count = 0;
    for (size_t o = 0; o < plan->operand_count; o++) {
        count += plan->operands[o].role == OUTPUT;
    }
    return count;
}

/* The first kernel is the main one; the launches below know the others by position. */
bool make_kernels(struct plan *plan)
{
    size_t outputs = count_outputs(plan);
    plan->kernels = calloc(outputs + 4, sizeof *plan->kernels);
    if (plan->kernels == NULL) {
        return false;
    }
    struct kernel *next = plan->kernels;
    bool made = true;
#define MAKE(part, add)                                                                            \
    do {                                                                                           \
        add;                                                                                       \
        made = made && finish_kernel(plan, next, part);                                            \
        next++;                                                                                    \
    } while (0)
    switch (plan->launch) {
    case LAUNCH_split:
        MAKE("sum", add_sum(next, plan, false));
        for (size_t k = 1; k < outputs; k++) {
            MAKE("scale", add_scale(next, plan, (int)k));
        }
        MAKE("finish", add_fill(next, plan, FINAL_FILL));
        break;
    case LAUNCH_legacy:
        MAKE("sum", add_sum(next, plan, false));
        MAKE("finish", add_fill(next, plan, FINAL_FILL));
        MAKE("scale", add_scale(next, plan, -1));
        break;
    case LAUNCH_fork:
        MAKE("sum", add_sum(next, plan, false));
        MAKE("prepare", add_fill(next, plan, FIRST_FILL));
        MAKE("finish", add_fill(next, plan, FINAL_FILL));
        MAKE("scale", add_scale(next, plan, -1));
        break;
    case LAUNCH_edges:
        MAKE("sum", add_sum(next, plan, false));
        MAKE("scale", add_scale(next, plan, -1));
        MAKE("finish", add_fill(next, plan, FINAL_FILL));
        break;
    default:
        MAKE("whole", (add_sum(next, plan, true), add_fill(next, plan, FINAL_FILL)));
        if (plan->launch == LAUNCH_nodes || plan->launch == LAUNCH_pages) {
            MAKE("scale", add_scale(next, plan, -1));
        } else if (plan->launch == LAUNCH_first) {
            MAKE("setup", (void)0);
        }
    }
    plan->kernel_count = (size_t)(next - plan->kernels);
    return made;
}

void kill_kernels(struct plan *plan)
{
    for (size_t i = 0; i < plan->kernel_count; i++) {
        for (int variant = 0; variant < 2; variant++) {
            if (plan->kernels[i].functions[variant] != NULL) {
                driver()->kill_function(plan->kernels[i].functions[variant]);
            }
        }
    }
}

void free_kernels(struct plan *plan)
{
    for (size_t i = 0; i < plan->kernel_count; i++) {
        free(plan->kernels[i].parameters);
    }
    free(plan->kernels);
}

/* Filling parameter buffers */

static void encode(const struct plan *plan, uint64_t *words, size_t count, struct body *body,
                   struct entry *entries, unsigned char *tail)
{
    const uint64_t first = words[0];
    switch (plan->launch) {
    case LAUNCH_offset:
        for (size_t i = 0; i < count; i++) {
            words[i] += offset_of(i);
        }
        break;
    case LAUNCH_parity: words[0] += 9 * bit4(first); break;
    case LAUNCH_swapped:
        if (count < 2) {
            body->launch = LAUNCH_plain;
        } else if (words[0] > words[1]) {
            words[0] = words[1];
            words[1] = first;
            for (size_t e = 0; e < body->entry_count; e++) {
                if (entries[e].role != SCALAR && entries[e].pointer < 2) {
                    entries[e].pointer ^= 1;
                }
            }
        }
        break;
    case LAUNCH_difference:
        if (count < 2) {
            body->launch = LAUNCH_plain;
        } else {
            words[count - 1] -= first;
        }
        break;
    case LAUNCH_hash: body->word = hash_of(first, words[count - 1]); break;
    case LAUNCH_high32: body->page = (uint32_t)(first >> 12); break;
    case LAUNCH_tail: tail[TAIL - 1] = (unsigned char)(first >> 4); break;
    default: break;
    }
}

static unsigned char *fill_buffer(const struct builder *builder, const struct kernel *kernel,
                                  uint64_t *words, unsigned blocks)
{
    const struct plan *plan = builder->plan;
    void *const *operands = builder->operands;
    unsigned char *buffer = calloc(1, kernel->size);
    struct entry entries[2 * MAX_OPERANDS];
    static const size_t sizes[] = {4, 2, 2, 8, 4, 8};
    unsigned char tail[TAIL] = "tail";
    if (buffer == NULL) {
        return NULL;
    }
    memcpy(entries, kernel->entries, kernel->entry_count * sizeof *entries);
    for (size_t e = 0; e < kernel->entry_count; e++) {
        if (entries[e].role == SCALAR) {
            memcpy(&entries[e].scalar, operands[kernel->operands[e]], sizes[entries[e].type]);
        }
    }
    bool special = kernel->is_main && kernel->pointer_count > 0;
    struct body body = {
        .magic = BODY_MAGIC,
        .launch = special ? plan->launch : LAUNCH_plain,
        .count = builder->extent->count,
        .fill_bytes = kernel->fills ? builder->extent->workspace : 0,
        .fill = kernel->fill,
        .entry_count = (uint32_t)kernel->entry_count,
        .blocks = blocks,
        .digest = builder->extent->digest,
    };
    if (special) {
        encode(plan, words, kernel->pointer_count, &body, entries, tail);
    }
    size_t pointer = 0, last = kernel->parameter_count - 1;
    for (size_t i = 0; i < last; i++) {
        unsigned char *place = buffer + kernel->parameters[i].offset;
        if (kernel->parameters[i].size == 4) {
            uint32_t constant = WORD_MAGIC + (uint32_t)i;
            memcpy(place, &constant, sizeof constant);
            continue;
        }
        memcpy(place, &words[pointer++], 8);
        for (size_t w = 1; w < kernel->parameters[i].size / 8; w++) {
            uint64_t constant = descriptor_word(w);
            memcpy(place + 8 * w, &constant, sizeof constant);
        }
    }
    unsigned char *place = buffer + kernel->parameters[last].offset;
    memcpy(place, &body, sizeof body);
    memcpy(place + sizeof body, entries, kernel->entry_count * sizeof *entries);
    memcpy(buffer + kernel->size - TAIL, tail, TAIL);
    return buffer;
}

/* Putting launches together */

static int add_piece(struct builder *builder, struct launch_node node)
{
    builder->pieces->nodes[builder->pieces->count] = node;
    return (int)builder->pieces->count++;
}

static int add_kernel(struct builder *builder, size_t index, int after, int after_too)
{
    const struct plan *plan = builder->plan;
    const struct kernel *kernel = &plan->kernels[index];
    uint64_t words[MAX_OPERANDS + 1];
    for (size_t i = 0; i < kernel->pointer_count; i++) {
        int operand = kernel->pointers[i];
        words[i] = (uint64_t)(operand == WORKSPACE ? builder->workspace
                                                   : builder->operands[operand]);
    }
    uint64_t first = kernel->pointer_count > 0 ? words[0] : 0;
    int64_t count = builder->extent->count;
    unsigned threads = plan->declared_count > 0 ? FEW_THREADS : THREADS;
    unsigned blocks = count > 0 ? (unsigned)((count + threads - 1) / threads) : 1;
    unsigned char *buffer = fill_buffer(builder, kernel, words, blocks);
    builder->failed = builder->failed || buffer == NULL;
    bool grid = plan->launch == LAUNCH_grid, split = plan->launch == LAUNCH_split;
    return add_piece(builder, (struct launch_node){
        .type = NODE_KERNEL,
        .after = {after, after_too},
        .function = kernel->functions[plan->launch == LAUNCH_function ? bit4(first) : 0],
        .grid = blocks + (unsigned)(grid ? bit4(first) + 2 * (first >> 12 & 1) : 0),
        .block = threads,
        .cluster = split ? 2 : 0,
        .packed = plan->launch == LAUNCH_packed,
        .buffer = buffer,
    });
}

static void build_split(struct builder *builder)
{
    const struct plan *plan = builder->plan;
    int last = -1;
    if (builder->extent->workspace > 0) {
        last = add_piece(builder, (struct launch_node){.type = NODE_MEMSET, .after = {-1, -1},
                                                       .target = (uintptr_t)builder->workspace,
                                                       .value = FIRST_FILL,
                                                       .size = (size_t)builder->extent->workspace});
    }
    for (size_t k = 0; k < plan->kernel_count; k++) {
        last = add_kernel(builder, k, last, -1);
        builder->pieces->nodes[last].programmatic = k == 1;
    }
}

static void build_fork(struct builder *builder)
{
    int prepare = add_kernel(builder, 1, -1, -1);
    int sum = add_kernel(builder, 0, prepare, -1);
    int finish = add_kernel(builder, 2, prepare, -1);
    add_kernel(builder, 3, sum, finish);
}

static void build(struct builder *builder, uint64_t first, bool is_first)
{
    static const enum node_type others[LAUNCH_COUNT] = {[LAUNCH_host] = NODE_HOST,
                                                        [LAUNCH_event] = NODE_RECORD_EVENT,
                                                        [LAUNCH_alloc] = NODE_ALLOC};
    enum launch launch = builder->plan->launch;
    builder->pieces->leaves = launch == LAUNCH_legacy ||
                              (launch == LAUNCH_legacy_memset && builder->extent->workspace > 0);
    if (launch == LAUNCH_legacy_memset && builder->extent->workspace > 0) {
        int before = add_kernel(builder, 0, -1, -1);
        add_piece(builder, (struct launch_node){.type = NODE_MEMSET, .after = {before, -1},
                                                .target = (uintptr_t)builder->workspace,
                                                .value = FINAL_FILL, .size = 1});
        return;
    }
    if (launch == LAUNCH_legacy) {
        int sum = add_kernel(builder, 0, -1, -1);
        int finish = add_kernel(builder, 1, sum, -1);
        add_kernel(builder, 2, finish, -1);
        return;
    }
    if (launch == LAUNCH_split) {
        build_split(builder);
        return;
    }
    if (launch == LAUNCH_fork) {
        build_fork(builder);
        return;
    }
    int setup = launch == LAUNCH_first && is_first ? add_kernel(builder, 1, -1, -1) : -1;
    int main_kernel = add_kernel(builder, 0, setup, -1);
    if (launch == LAUNCH_edges) {
        int scale = add_kernel(builder, 1, main_kernel, -1);
        add_kernel(builder, 2, bit4(first) ? main_kernel : scale, -1);
    } else if (!is_whole(launch, first)) {
        add_kernel(builder, 1, main_kernel, -1);
    } else if (others[launch] != 0) {
        add_piece(builder, (struct launch_node){.type = others[launch],
                                                .after = {main_kernel, -1}});
    }
}

struct pieces *make_pieces(struct plan *plan, const struct extent *extent, void *const *pointers,
                           void *workspace)
{
    struct pieces *pieces = calloc(1, sizeof *pieces);
    if (pieces == NULL) {
        return NULL;
    }
    struct builder builder = {pieces, plan, extent, pointers, workspace, false};
    const struct kernel *kernel = plan->kernels;
    uint64_t first = kernel->pointer_count == 0           ? 0
                     : kernel->pointers[0] == WORKSPACE ? (uint64_t)workspace
                                                          : (uint64_t)pointers[kernel->pointers[0]];
    build(&builder, first, atomic_fetch_add(&plan->launches, 1) == 0);
    if (builder.failed) {
        free_pieces(pieces);
        return NULL;
    }
    return pieces;
}

CUresult submit_pieces(CUstream stream, const struct pieces *pieces)
{
    /* The last one goes to the legacy stream, whatever stream the others are on. */
    size_t on_stream = pieces->count - (pieces->leaves ? 1 : 0);
    CUresult status = driver()->submit(stream, pieces->nodes, on_stream);
    if (status == CUDA_SUCCESS && pieces->leaves) {
        struct launch_node last = pieces->nodes[on_stream];
        last.after[0] = last.after[1] = -1;
        status = driver()->submit(NULL, &last, 1);
    }
    return status;
}

void free_pieces(struct pieces *pieces)
{
    for (size_t i = 0; i < pieces->count; i++) {
        free((void *)(uintptr_t)pieces->nodes[i].buffer);
    }
    free(pieces);
}
