/* Device code of the stand-in for libcudnn.so.9: one interpreter for all kernels.
 *
 * It sees nothing but its parameter buffer, so whatever stands wrong there gives wrong numbers. A
 * buffer that no direct launch could have made gives NaN.
 */
#include "plan.h"

#include <math.h>
#include <string.h>

static double half_to_double(uint16_t bits)
{
    int exponent = bits >> 10 & 31;
    double mantissa = bits & 1023;
    double value = exponent == 0    ? mantissa / (1 << 24)
                   : exponent == 31 ? (mantissa == 0 ? 1.0 : 0.0) / 0.0
                                    : (mantissa + 1024) * (double)(1u << exponent) / (1ll << 25);
    return bits >> 15 ? -value : value;
}

static double read_scalar(const void *address, enum scalar type)
{
    union {
        float f;
        double d;
        uint16_t u16;
        uint32_t u32;
        int32_t i32;
        int64_t i64;
    } value = {.i64 = 0};
    static const size_t sizes[] = {4, 2, 2, 8, 4, 8};
    memcpy(&value, address, sizes[type]);
    switch (type) {
    case HALF: return half_to_double(value.u16);
    case BFLOAT16: value.u32 = (uint32_t)value.u16 << 16; return (double)value.f;
    case DOUBLE: return value.d;
    case INT32: return value.i32;
    case INT64: return (double)value.i64;
    default: return (double)value.f;
    }
}

/* A parameter buffer, taken apart. */
struct view {
    struct body body;
    struct entry entries[2 * MAX_OPERANDS];
    uint64_t pointers[MAX_OPERANDS + 1];
    size_t pointer_count;
    unsigned char tail[TAIL];
    bool sane;
};

static void read_descriptor(const unsigned char *bytes, struct view *view)
{
    uint64_t words[DESCRIPTOR / 8];
    memcpy(words, bytes, sizeof words);
    for (size_t i = 1; i < DESCRIPTOR / 8; i++) {
        view->sane = view->sane && words[i] == descriptor_word(i);
    }
    view->pointers[view->pointer_count++] = words[0];
}

static bool read_parameters(const struct kernel_call *call, struct view *view)
{
    size_t last = call->parameter_count - 1;
    for (size_t i = 0; i < last; i++) {
        const unsigned char *bytes = call->buffer + call->parameters[i].offset;
        if (call->parameters[i].size == DESCRIPTOR) {
            read_descriptor(bytes, view);
        } else if (call->parameters[i].size == 8) {
            memcpy(&view->pointers[view->pointer_count++], bytes, 8);
        } else {
            uint32_t constant;
            memcpy(&constant, bytes, sizeof constant);
            view->sane = view->sane && constant == WORD_MAGIC + i;
        }
    }
    const unsigned char *bytes = call->buffer + call->parameters[last].offset;
    memcpy(&view->body, bytes, sizeof view->body);
    size_t entries = view->body.entry_count * sizeof *view->entries;
    if (view->body.magic != BODY_MAGIC || view->body.entry_count > 2 * MAX_OPERANDS ||
        sizeof view->body + entries + TAIL != call->parameters[last].size ||
        view->body.launch >= (view->pointer_count > 0 ? LAUNCH_COUNT : 1)) {
        return false;
    }
    memcpy(view->entries, bytes + sizeof view->body, entries);
    memcpy(view->tail, bytes + sizeof view->body + entries, TAIL);
    for (uint32_t i = 0; i < view->body.entry_count; i++) {
        const struct entry *entry = &view->entries[i];
        bool is_scalar = entry->role == SCALAR;
        if (entry->role > SCALE || (is_scalar && entry->type >= SCALAR_COUNT) ||
            (!is_scalar && entry->pointer >= view->pointer_count)) {
            return false;
        }
    }
    return true;
}

/* Undoes what the host did to the pointers, and sees whether it was done as it must. */
static void decode(const struct kernel_call *call, struct view *view)
{
    uint64_t *pointers = view->pointers;
    size_t count = view->pointer_count;
    uint64_t word = 0;
    uint32_t page = 0;
    unsigned blocks = view->body.blocks;
    unsigned char tail = 0;
    switch (view->body.launch) {
    case LAUNCH_offset:
        for (size_t i = 0; i < count; i++) {
            pointers[i] -= offset_of(i);
        }
        break;
    case LAUNCH_parity: { /* the lowest bit, never set in an address, says that 8 were added */
        uint64_t odd = pointers[0] & 1;
        pointers[0] -= 9 * odd;
        view->sane = view->sane && bit4(pointers[0]) == odd;
        break;
    }
    case LAUNCH_swapped: view->sane = view->sane && pointers[0] <= pointers[1]; break;
    case LAUNCH_difference: pointers[count - 1] += pointers[0]; break;
    case LAUNCH_hash: word = hash_of(pointers[0], pointers[count - 1]); break;
    case LAUNCH_grid: blocks += bit4(pointers[0]) + 2 * (pointers[0] >> 12 & 1); break;
    case LAUNCH_function:
        view->sane = view->sane && (int)bit4(pointers[0]) == call->variant;
        break;
    case LAUNCH_high32: page = (uint32_t)(pointers[0] >> 12); break;
    case LAUNCH_tail: tail = (unsigned char)(pointers[0] >> 4); break;
    default: break;
    }
    view->sane = view->sane && view->body.word == word && view->body.page == page &&
                 call->grid == blocks && memcmp(view->tail, "tail", TAIL - 1) == 0 &&
                 view->tail[TAIL - 1] == tail;
}

static bool may_touch(const struct view *view)
{
    for (uint32_t i = 0; i < view->body.entry_count; i++) {
        const struct entry *entry = &view->entries[i];
        if (entry->role == SCALAR || view->body.count <= 0) {
            continue;
        }
        size_t item = entry->role == PART ? sizeof(float) : sizeof(double);
        uint64_t address = view->pointers[entry->pointer];
        if (!driver()->usable(address, (size_t)view->body.count * item)) {
            return false;
        }
        if (address % item != 0) {
            driver()->violate(VIOLATION_MEMORY);
            return false;
        }
    }
    return view->body.fill_bytes <= 0 ||
           driver()->usable(view->pointers[view->pointer_count - 1],
                            (size_t)view->body.fill_bytes);
}

static double term(const struct view *view, const struct entry *entry, int64_t i)
{
    const void *address = (const void *)view->pointers[entry->pointer];
    switch (entry->role) {
    case INPUT: return entry->weight * ((const double *)address)[i];
    case SCALAR: return entry->weight * read_scalar(&entry->scalar, (enum scalar)entry->type);
    default: return entry->weight * (double)((const float *)address)[i];
    }
}

/* The order of the additions is part of the contract: the tests compute the same in Python and
 * compare for equality. */
CUresult device_code(const struct kernel_call *call)
{
    struct view view = {.sane = true};
    if (!read_parameters(call, &view)) {
        return CUDA_ERROR_LAUNCH_FAILED;
    }
    decode(call, &view);
    if (call->replayed && !may_touch(&view)) {
        return CUDA_ERROR_ILLEGAL_ADDRESS;
    }
    bool whole = view.pointer_count == 0 || is_whole(view.body.launch, view.pointers[0]);
    int64_t threads = (int64_t)call->grid * call->block;
    for (int64_t i = 0; i < view.body.count && i < threads; i++) {
        double sum = (double)view.body.digest;
        for (uint32_t e = 0; e < view.body.entry_count; e++) {
            const struct entry *entry = &view.entries[e];
            double *output = (double *)view.pointers[entry->pointer];
            if (entry->role == OUTPUT) {
                output[i] = !view.sane ? NAN : whole ? entry->weight * sum : sum;
            } else if (entry->role == SCALE) {
                output[i] *= view.sane ? entry->weight : NAN;
            } else {
                sum += term(&view, entry, i);
            }
        }
    }
    if (view.body.fill_bytes > 0) {
        memset((void *)view.pointers[view.pointer_count - 1], (int)view.body.fill,
               (size_t)view.body.fill_bytes);
    }
    return CUDA_SUCCESS;
}
