/* Device memory of the stand-in for libcuda.so.1: host memory, and what is known of it. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>

enum { MAX_QUARANTINE = 256 };
#define MEMORY_OF_A_DEVICE ((size_t)16 << 30)
#define FILLED_WHEN_NEW ((size_t)64 << 20) /* larger blocks stay untouched: pages cost time */

struct block {
    struct block *next;
    uintptr_t address;
    size_t size;
    struct context *context;
};

static struct block *blocks;    /* live */
static struct block *freed, **freed_tail = &freed; /* kept a while, so that late users are seen */
static int freed_count;
static size_t freed_bytes;

enum place locate(uintptr_t address, size_t size, struct context **context)
{
    enum place where = BLOCK_HOST;
    pthread_mutex_lock(&standin_lock);
    for (struct block *block = blocks; block != NULL; block = block->next) {
        if (address - block->address < block->size) {
            where = size <= block->size - (address - block->address) ? BLOCK_INSIDE : BLOCK_OUTSIDE;
            *context = block->context;
            break;
        }
    }
    for (struct block *block = freed; where == BLOCK_HOST && block != NULL; block = block->next) {
        if (address - block->address < block->size) {
            where = BLOCK_FREED;
        }
    }
    pthread_mutex_unlock(&standin_lock);
    return where;
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
    ENTER_INITIALIZED(cuMemAlloc);
    REQUIRE(address != NULL && size > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(current_context() != NULL, CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE_SUCCESS(refuse_in_capture());
    REQUIRE(size <= MEMORY_OF_A_DEVICE, CUDA_ERROR_OUT_OF_MEMORY);
    struct block *block = malloc(sizeof *block);
    void *memory = block == NULL ? NULL : aligned_alloc(256, (size + 255) / 256 * 256);
    if (memory == NULL) {
        free(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (size <= FILLED_WHEN_NEW) {
        memset(memory, 0xCD, size); /* so that nobody relies on zeros */
    }
    pthread_mutex_lock(&standin_lock);
    *block = (struct block){blocks, (uintptr_t)memory, size, current_context()};
    blocks = block;
    pthread_mutex_unlock(&standin_lock);
    *address = (uintptr_t)memory;
    add_live(LIVE_MEMORY, 1);
    log_call("cuMemAlloc 0x%jx %zu", (uintmax_t)(uintptr_t)memory, size);
    return leave(CALL_cuMemAlloc, CUDA_SUCCESS);
}

/* Takes the block into quarantine, and the oldest out of it; with the lock held. */
static void quarantine(struct block *block)
{
    block->next = NULL;
    *freed_tail = block;
    freed_tail = &block->next;
    freed_count++;
    freed_bytes += block->size;
    while (freed != NULL && (freed_count > MAX_QUARANTINE || freed_bytes > FILLED_WHEN_NEW)) {
        struct block *oldest = freed;
        freed = oldest->next;
        if (freed == NULL) {
            freed_tail = &freed;
        }
        freed_count--;
        freed_bytes -= oldest->size;
        free((void *)oldest->address);
        free(oldest);
    }
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr address)
{
    ENTER_INITIALIZED(cuMemFree);
    if (address == 0) {
        return leave(CALL_cuMemFree, CUDA_SUCCESS);
    }
    REQUIRE(current_context() != NULL, CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE_SUCCESS(refuse_in_capture());
    struct block *found = NULL;
    pthread_mutex_lock(&standin_lock);
    for (struct block **place = &blocks; *place != NULL; place = &(*place)->next) {
        if ((*place)->address == address) {
            found = *place;
            *place = found->next;
            if (found->size <= FILLED_WHEN_NEW) {
                memset((void *)address, 0xDD, found->size);
            }
            quarantine(found);
            break;
        }
    }
    pthread_mutex_unlock(&standin_lock);
    if (found == NULL) {
        violate(VIOLATION_MEMORY);
        return CUDA_ERROR_INVALID_VALUE;
    }
    add_live(LIVE_MEMORY, -1);
    log_call("cuMemFree 0x%jx", (uintmax_t)address);
    return leave(CALL_cuMemFree, CUDA_SUCCESS);
}

/* Checks a write that runs now as CUDA would. A captured one is checked when it runs. */
static CUresult check_write(CUdeviceptr address, size_t size, CUstream stream)
{
    struct context *context;
    REQUIRE(address != 0, CUDA_ERROR_INVALID_VALUE);
    if (is_capturing(stream)) {
        return CUDA_SUCCESS;
    }
    enum place where = locate(address, size, &context);
    if (where == BLOCK_OUTSIDE || where == BLOCK_FREED) {
        violate(VIOLATION_MEMORY);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return CUDA_SUCCESS;
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    ENTER_INITIALIZED(cuMemcpyHtoDAsync);
    REQUIRE(from != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE_SUCCESS(check_write(to, size, stream));
    REQUIRE_SUCCESS(submit(stream, &(struct launch_node){.type = NODE_MEMCPY, .after = {-1, -1},
                                                         .target = to, .source = from,
                                                         .size = size}, 1));
    log_call("cuMemcpyHtoDAsync 0x%jx 0x%jx %zu 0x%jx", (uintmax_t)to,
             (uintmax_t)(uintptr_t)from, size, (uintmax_t)(uintptr_t)stream);
    return leave(CALL_cuMemcpyHtoDAsync, CUDA_SUCCESS);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size, CUstream stream)
{
    ENTER_INITIALIZED(cuMemsetD8Async);
    REQUIRE_SUCCESS(check_write(to, size, stream));
    REQUIRE_SUCCESS(submit(stream, &(struct launch_node){.type = NODE_MEMSET, .after = {-1, -1},
                                                         .target = to, .value = value,
                                                         .size = size}, 1));
    log_call("cuMemsetD8Async 0x%jx %u %zu 0x%jx", (uintmax_t)to, value, size,
             (uintmax_t)(uintptr_t)stream);
    return leave(CALL_cuMemsetD8Async, CUDA_SUCCESS);
}
