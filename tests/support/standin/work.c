/* Kernels and other work of the stand-in for libcuda.so.1: kept, copied, run, or captured. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct function {
    struct object object;
    bool is_kernel; /* a CUkernel, otherwise a CUfunction */
    char name[64];
    CUcontext context;
    struct parameter *parameters;
    size_t count, size;
    kernel_code *code;
    int variant;
};

CUresult check_object(const void *address, enum object_kind kind, CUresult status)
{
    const struct object *object = address;
    REQUIRE(object != NULL && (uintptr_t)object % 8 == 0 && object->kind == kind, status);
    if (atomic_load(&object->dead)) {
        violate(VIOLATION_DESTROYED);
        return status;
    }
    return CUDA_SUCCESS;
}

/* Functions */

struct function *make_function(const char *name, bool is_kernel, const struct parameter *parameters,
                               size_t count, kernel_code *code, int variant)
{
    struct function *function = calloc(1, sizeof *function);
    struct parameter *copy = calloc(count, sizeof *copy);
    if (function == NULL || copy == NULL) {
        free(function);
        free(copy);
        return NULL;
    }
    memcpy(copy, parameters, count * sizeof *copy);
    *function = (struct function){.object = {.kind = FUNCTION},
                                  .is_kernel = is_kernel,
                                  .context = current_context(),
                                  .parameters = copy,
                                  .count = count,
                                  .size = copy[count - 1].offset + copy[count - 1].size,
                                  .code = code,
                                  .variant = variant};
    snprintf(function->name, sizeof function->name, "%s", name);
    add_live(LIVE_FUNCTION, 1);
    return function;
}

/* Its memory stays: graphs may name it for ever. */
void kill_function(struct function *function)
{
    atomic_store(&function->object.dead, true);
    add_live(LIVE_FUNCTION, -1);
}

struct function *function_of(const struct kernel_params *params)
{
    return params->function != NULL ? params->function : params->kernel;
}

static CUresult get_name(const char **name, const struct function *function, bool is_kernel)
{
    REQUIRE(name != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE_SUCCESS(check_object(function, FUNCTION, CUDA_ERROR_INVALID_HANDLE));
    REQUIRE(function->is_kernel == is_kernel, CUDA_ERROR_INVALID_HANDLE);
    *name = function->name;
    return CUDA_SUCCESS;
}

static CUresult get_parameter(const struct function *function, size_t index, size_t *offset,
                              size_t *size, bool is_kernel)
{
    REQUIRE(offset != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE_SUCCESS(check_object(function, FUNCTION, CUDA_ERROR_INVALID_HANDLE));
    REQUIRE(function->is_kernel == is_kernel, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(index < function->count, CUDA_ERROR_INVALID_VALUE);
    *offset = function->parameters[index].offset;
    if (size != NULL) {
        *size = function->parameters[index].size;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuFuncGetName(const char **name, struct function *function)
{
    ENTER_INITIALIZED(cuFuncGetName);
    return leave(CALL_cuFuncGetName, get_name(name, function, false));
}

EXPORT CUresult cuKernelGetName(const char **name, struct function *function)
{
    ENTER_INITIALIZED(cuKernelGetName);
    return leave(CALL_cuKernelGetName, get_name(name, function, true));
}

EXPORT CUresult cuFuncGetParamInfo(struct function *function, size_t index, size_t *offset,
                                   size_t *size)
{
    ENTER_INITIALIZED(cuFuncGetParamInfo);
    return leave(CALL_cuFuncGetParamInfo, get_parameter(function, index, offset, size, false));
}

EXPORT CUresult cuKernelGetParamInfo(struct function *function, size_t index, size_t *offset,
                                     size_t *size)
{
    ENTER_INITIALIZED(cuKernelGetParamInfo);
    return leave(CALL_cuKernelGetParamInfo, get_parameter(function, index, offset, size, true));
}

/* Work */

void free_work(struct work *work)
{
    free(work->buffer);
    free(work->pointers);
    if (work->child != NULL) {
        drop_exec(work->child);
        free(work->child); /* nobody else ever saw it */
    }
    *work = (struct work){.type = work->type};
}

/* Gives the work a buffer and pointers of its own, in the form (`packed` or not) asked for. */
static CUresult own_parameters(struct work *work, bool packed)
{
    const struct function *function = function_of(&work->kernel);
    size_t room = packed ? 6 : function->count + 1;
    work->buffer = calloc(1, function->size);
    work->pointers = calloc(room, sizeof *work->pointers);
    REQUIRE(work->buffer != NULL && work->pointers != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    work->kernel.parameters = packed ? NULL : work->pointers;
    work->kernel.extra = packed ? work->pointers : NULL;
    if (packed) { /* the size first, as cuBLAS gives it */
        memcpy(&work->pointers[5], &function->size, sizeof function->size);
        work->pointers[0] = PARAM_SIZE;
        work->pointers[1] = &work->pointers[5];
        work->pointers[2] = PARAM_POINTER;
        work->pointers[3] = work->buffer;
        work->pointers[4] = PARAM_END;
    } else {
        for (size_t i = 0; i < function->count; i++) {
            work->pointers[i] = work->buffer + function->parameters[i].offset;
        }
    }
    return CUDA_SUCCESS;
}

static CUresult read_extra(void **extra, size_t size, const void **buffer)
{
    const size_t *given = NULL;
    *buffer = NULL;
    for (; *extra != PARAM_END; extra += 2) {
        if (*extra == PARAM_POINTER) {
            *buffer = extra[1];
        } else if (*extra == PARAM_SIZE) {
            given = extra[1];
        } else {
            return CUDA_ERROR_INVALID_VALUE;
        }
    }
    REQUIRE(*buffer != NULL && given != NULL && *given == size, CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult make_kernel_work(const struct kernel_params *params, struct work *work)
{
    REQUIRE(params != NULL, CUDA_ERROR_INVALID_VALUE);
    const struct function *function = function_of(params);
    REQUIRE_SUCCESS(check_object(function, FUNCTION, CUDA_ERROR_INVALID_HANDLE));
    REQUIRE(function->is_kernel == (params->function == NULL), CUDA_ERROR_INVALID_HANDLE);
    REQUIRE(params->function != NULL || params->context == function->context,
            CUDA_ERROR_INVALID_CONTEXT);
    for (int i = 0; i < 3; i++) {
        REQUIRE(params->grid[i] > 0 && params->block[i] > 0, CUDA_ERROR_INVALID_VALUE);
    }
    REQUIRE(params->block[0] * params->block[1] * params->block[2] <= 1024,
            CUDA_ERROR_INVALID_VALUE);
    bool packed = params->extra != NULL;
    REQUIRE(packed != (params->parameters != NULL), CUDA_ERROR_INVALID_VALUE);
    const void *buffer = NULL;
    if (packed) {
        REQUIRE_SUCCESS(read_extra(params->extra, function->size, &buffer));
    }
    *work = (struct work){.type = NODE_KERNEL, .context = function->context, .kernel = *params};
    CUresult status = own_parameters(work, packed);
    if (status != CUDA_SUCCESS) {
        free_work(work);
        return status;
    }
    if (packed) {
        memcpy(work->buffer, buffer, function->size);
    } else {
        for (size_t i = 0; i < function->count; i++) {
            memcpy(work->pointers[i], params->parameters[i], function->parameters[i].size);
        }
    }
    return CUDA_SUCCESS;
}

CUresult check_memset(const struct memset_params *params)
{
    REQUIRE(params != NULL && params->target != 0, CUDA_ERROR_INVALID_VALUE);
    unsigned bytes = params->element_bytes;
    REQUIRE(bytes == 1 || bytes == 2 || bytes == 4, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(params->target % bytes == 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(params->width > 0 && params->height > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(params->height == 1 || params->pitch >= params->width * bytes,
            CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

static CUresult check_side(const struct memcpy_side *side)
{
    REQUIRE(side->reserved == NULL, CUDA_ERROR_INVALID_VALUE);
    switch (side->memory_type) {
    case MEMORY_HOST: return side->host != NULL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case MEMORY_DEVICE:
    case MEMORY_UNIFIED: return side->device != 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    case 3: return CUDA_ERROR_NOT_SUPPORTED; /* arrays */
    default: return CUDA_ERROR_INVALID_VALUE;
    }
}

CUresult check_memcpy(const struct memcpy_params *params)
{
    REQUIRE(params != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE_SUCCESS(check_side(&params->source));
    REQUIRE_SUCCESS(check_side(&params->target));
    REQUIRE(params->width > 0 && params->height > 0 && params->depth > 0,
            CUDA_ERROR_INVALID_VALUE);
    return CUDA_SUCCESS;
}

CUresult copy_work(const struct work *from, struct work *to)
{
    *to = *from;
    to->buffer = NULL;
    to->pointers = NULL;
    to->child = NULL;
    CUresult status = CUDA_SUCCESS;
    if (from->type == NODE_KERNEL) {
        status = own_parameters(to, from->kernel.extra != NULL);
        if (status == CUDA_SUCCESS) {
            memcpy(to->buffer, from->buffer, function_of(&from->kernel)->size);
        }
    } else if (from->child != NULL) {
        status = copy_exec(from->child, &to->child);
    }
    if (status != CUDA_SUCCESS) {
        free_work(to);
    }
    return status;
}

/* Running */

bool usable(uintptr_t address, size_t size)
{
    CUcontext context;
    enum place where = locate(address, size, &context);
    bool good = where == BLOCK_HOST || where == BLOCK_INSIDE;
    if (where == BLOCK_HOST) { /* a patched address may be anything: ask before touching it */
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        unsigned char present;
        good = address != 0 && address + size >= address;
        for (uintptr_t at = address / page * page; good && at < address + size; at += page) {
            good = mincore((void *)at, page, &present) == 0;
        }
    }
    if (!good) {
        violate(VIOLATION_MEMORY);
    }
    return good;
}

static CUresult run_kernel(const struct work *work, bool replayed)
{
    const struct function *function = function_of(&work->kernel);
    if (replayed) { /* a direct launch checked the plan that the function belongs to */
        REQUIRE_SUCCESS(check_object(function, FUNCTION, CUDA_ERROR_INVALID_HANDLE));
    }
    return function->code(&(struct kernel_call){
        .variant = function->variant,
        .grid = work->kernel.grid[0],
        .block = work->kernel.block[0],
        .parameters = function->parameters,
        .parameter_count = function->count,
        .buffer = work->buffer,
        .replayed = replayed,
    });
}

static CUresult run_memset(const struct memset_params *params, bool replayed)
{
    for (size_t row = 0; row < params->height; row++) {
        uintptr_t start = params->target + row * params->pitch;
        REQUIRE(!replayed || usable(start, params->width * params->element_bytes),
                CUDA_ERROR_ILLEGAL_ADDRESS);
        for (size_t i = 0; i < params->width; i++) {
            memcpy((char *)start + i * params->element_bytes, &params->value,
                   params->element_bytes);
        }
    }
    return CUDA_SUCCESS;
}

static uintptr_t row_of(const struct memcpy_side *side, size_t y, size_t z)
{
    uintptr_t base = side->memory_type == MEMORY_HOST ? (uintptr_t)side->host : side->device;
    return base + ((side->z + z) * side->height + side->y + y) * side->pitch + side->x;
}

static CUresult run_memcpy(const struct memcpy_params *params, bool replayed)
{
    for (size_t z = 0; z < params->depth; z++) {
        for (size_t y = 0; y < params->height; y++) {
            uintptr_t from = row_of(&params->source, y, z), to = row_of(&params->target, y, z);
            REQUIRE(!replayed || (usable(from, params->width) && usable(to, params->width)),
                    CUDA_ERROR_ILLEGAL_ADDRESS);
            memmove((void *)to, (void *)from, params->width);
        }
    }
    return CUDA_SUCCESS;
}

CUresult run_work(const struct work *work, bool replayed)
{
    switch (work->type) {
    case NODE_KERNEL: return run_kernel(work, replayed);
    case NODE_MEMSET: return run_memset(&work->memset, replayed);
    case NODE_MEMCPY: return run_memcpy(&work->memcpy, replayed);
    case NODE_GRAPH: return run_exec(work->child);
    default: return CUDA_SUCCESS; /* their effect, if any, is not on memory */
    }
}

/* Submission */

static void set_attribute(struct work *work, int id, const void *value, size_t size)
{
    memcpy(work->attributes[id].bytes, value, size);
}

static CUresult make_work(const struct launch_node *piece, int priority, struct work *work)
{
    *work = (struct work){.type = piece->type, .context = current_context()};
    switch (piece->type) {
    case NODE_KERNEL:
        work->kernel = (struct kernel_params){
            .grid = {piece->grid, 1, 1},
            .block = {piece->block, 1, 1},
            .shared_bytes = 1024,
        };
        if (piece->function->is_kernel) {
            work->kernel.kernel = piece->function;
            work->kernel.context = piece->function->context;
        } else {
            work->kernel.function = piece->function;
        }
        REQUIRE_SUCCESS(own_parameters(work, piece->packed));
        memcpy(work->buffer, piece->buffer, piece->function->size);
        set_attribute(work, ATTRIBUTE_PRIORITY, &priority, sizeof priority);
        if (piece->cluster > 0) {
            unsigned cluster[3] = {piece->cluster, 1, 1};
            set_attribute(work, ATTRIBUTE_CLUSTER, cluster, sizeof cluster);
        }
        break;
    case NODE_MEMSET:
        work->memset = (struct memset_params){.target = piece->target, .value = piece->value,
                                              .element_bytes = 1, .width = piece->size,
                                              .height = 1};
        break;
    case NODE_MEMCPY:
        work->memcpy = (struct memcpy_params){
            .source = {.memory_type = MEMORY_HOST, .host = (void *)(uintptr_t)piece->source},
            .target = {.memory_type = MEMORY_DEVICE, .device = piece->target},
            .width = piece->size, .height = 1, .depth = 1};
        break;
    case NODE_GRAPH: return copy_exec(piece->child, &work->child);
    default: break;
    }
    return CUDA_SUCCESS;
}

/* With the lock held. */
static CUresult add_captured(struct stream *stream, const struct launch_node *pieces, size_t count)
{
    struct node *nodes[count];
    bool is_last[count];
    for (size_t i = 0; i < count; i++) {
        struct work work;
        CUresult status = make_work(&pieces[i], stream->priority, &work);
        if (status != CUDA_SUCCESS) {
            free_work(&work);
            return status;
        }
        REQUIRE_SUCCESS(add_node(stream->graph, &work, &nodes[i]));
        is_last[i] = true;
        bool first = true;
        for (int j = 0; j < 2; j++) {
            if (pieces[i].after[j] >= 0) {
                REQUIRE_SUCCESS(add_edge(stream->graph, nodes[pieces[i].after[j]], nodes[i],
                                         j == 0 && pieces[i].programmatic));
                is_last[pieces[i].after[j]] = false;
                first = false;
            }
        }
        for (size_t j = 0; first && j < stream->last_count; j++) {
            REQUIRE_SUCCESS(add_edge(stream->graph, stream->last[j], nodes[i], false));
        }
    }
    stream->last_count = 0;
    for (size_t i = 0; i < count && stream->last_count < MAX_LAST; i++) {
        if (is_last[i]) {
            stream->last[stream->last_count++] = nodes[i];
        }
    }
    return CUDA_SUCCESS;
}

CUresult submit(CUstream argument, const struct launch_node *pieces, size_t count)
{
    struct stream *stream = NULL;
    bool captured;
    int priority = 0;
    pthread_mutex_lock(&standin_lock);
    CUresult status = begin_launch(argument, &stream, &captured);
    if (status == CUDA_SUCCESS) {
        priority = stream->priority;
        if (captured) {
            status = add_captured(stream, pieces, count);
        }
    }
    pthread_mutex_unlock(&standin_lock);
    for (size_t i = 0; i < count && !captured && status == CUDA_SUCCESS; i++) {
        if (pieces[i].type == NODE_GRAPH) {
            status = run_exec(pieces[i].child);
            continue;
        }
        struct work work;
        status = make_work(&pieces[i], priority, &work);
        if (status == CUDA_SUCCESS) {
            status = run_work(&work, false);
        }
        free_work(&work);
    }
    return status;
}

/* For the tests: cuLaunchKernelEx without attributes. */
EXPORT CUresult standin_launch_kernel(CUstream stream, const struct kernel_params *params)
{
    struct work work;
    REQUIRE_SUCCESS(make_kernel_work(params, &work));
    CUresult status = submit(stream, &(struct launch_node){.type = NODE_KERNEL,
                                                           .after = {-1, -1},
                                                           .function = function_of(params),
                                                           .grid = params->grid[0],
                                                           .block = params->block[0],
                                                           .packed = params->extra != NULL,
                                                           .buffer = work.buffer}, 1);
    free_work(&work);
    return status;
}
