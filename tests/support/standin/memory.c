/* Device memory of the stand-in for libcuda.so.1: host memory, and what is known of it. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

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

EXPORT CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream argument)
{
    ENTER_INITIALIZED(cuMemcpyDtoHAsync);
    REQUIRE(to != NULL && usable(from, size), CUDA_ERROR_INVALID_VALUE);
    struct stream *stream = NULL;
    bool captured;
    pthread_mutex_lock(&standin_lock);
    CUresult status = begin_launch(argument, &stream, &captured);
    pthread_mutex_unlock(&standin_lock);
    REQUIRE_SUCCESS(status);
    REQUIRE(!captured, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    memcpy(to, (void *)from, size);
    return leave(CALL_cuMemcpyDtoHAsync, CUDA_SUCCESS);
}

EXPORT CUresult cuMemAllocHost_v2(void **address, size_t size)
{
    ENTER_INITIALIZED(cuMemAllocHost);
    REQUIRE(address != NULL && size > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE_SUCCESS(refuse_in_capture());
    *address = malloc(size);
    return leave(CALL_cuMemAllocHost, *address == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS);
}

EXPORT CUresult cuMemFreeHost(void *address)
{
    ENTER_INITIALIZED(cuMemFreeHost);
    REQUIRE_SUCCESS(refuse_in_capture());
    free(address);
    return leave(CALL_cuMemFreeHost, CUDA_SUCCESS);
}

/* Virtual memory: a file in memory that may be mapped many times, and ranges to map it into. */

enum { GRANULARITY = 2 << 20 };

struct properties { /* CUmemAllocationProp */
    int type, exported_as, location_type, device;
    void *windows;
    unsigned char flags[8];
};

EXPORT CUresult cuMemCreate(uint64_t *handle, size_t size, const struct properties *properties,
                            unsigned long long flags)
{
    ENTER_INITIALIZED(cuMemCreate);
    REQUIRE(handle != NULL && properties != NULL && flags == 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(properties->type == 1 && properties->location_type == 1, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(size > 0 && size % GRANULARITY == 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE_SUCCESS(refuse_in_capture());
    int file = memfd_create("standin", MFD_CLOEXEC);
    REQUIRE(file >= 0, CUDA_ERROR_OUT_OF_MEMORY);
    if (ftruncate(file, (off_t)size) != 0) {
        close(file);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    *handle = (uint64_t)file;
    return leave(CALL_cuMemCreate, CUDA_SUCCESS);
}

EXPORT CUresult cuMemRelease(uint64_t handle)
{
    ENTER_INITIALIZED(cuMemRelease);
    REQUIRE(close((int)handle) == 0, CUDA_ERROR_INVALID_VALUE);
    return leave(CALL_cuMemRelease, CUDA_SUCCESS);
}

enum { MAX_RANGES = 64 };
static struct { uintptr_t address; size_t size; } ranges[MAX_RANGES];
static size_t range_count;

bool is_reserved(uintptr_t address)
{
    bool found = false;
    pthread_mutex_lock(&standin_lock);
    for (size_t i = 0; i < range_count; i++) {
        found = found || address - ranges[i].address < ranges[i].size;
    }
    pthread_mutex_unlock(&standin_lock);
    return found;
}

static CUresult place(CUdeviceptr address, size_t size, int protection, int flags, int file)
{
    void *found = mmap((void *)address, size, protection, flags, file, 0);
    return found == MAP_FAILED ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t alignment,
                                    CUdeviceptr wanted, unsigned long long flags)
{
    ENTER_INITIALIZED(cuMemAddressReserve);
    REQUIRE(address != NULL && size > 0 && size % GRANULARITY == 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(alignment == GRANULARITY && wanted == 0 && flags == 0, CUDA_ERROR_INVALID_VALUE);
    char *found = mmap(NULL, size + alignment, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    REQUIRE(found != MAP_FAILED, CUDA_ERROR_OUT_OF_MEMORY);
    *address = ((uintptr_t)found + alignment - 1) / alignment * alignment;
    pthread_mutex_lock(&standin_lock);
    ranges[range_count % MAX_RANGES].address = *address;
    ranges[range_count % MAX_RANGES].size = size;
    range_count += range_count < MAX_RANGES - 1;
    pthread_mutex_unlock(&standin_lock);
    return leave(CALL_cuMemAddressReserve, CUDA_SUCCESS);
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr address, size_t size)
{
    ENTER_INITIALIZED(cuMemAddressFree);
    REQUIRE(munmap((void *)address, size) == 0, CUDA_ERROR_INVALID_VALUE);
    return leave(CALL_cuMemAddressFree, CUDA_SUCCESS);
}

EXPORT CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, uint64_t handle,
                         unsigned long long flags)
{
    ENTER_INITIALIZED(cuMemMap);
    REQUIRE(address % GRANULARITY == 0 && offset == 0 && flags == 0, CUDA_ERROR_INVALID_VALUE);
    return leave(CALL_cuMemMap, place(address, size, PROT_NONE, MAP_SHARED | MAP_FIXED,
                                      (int)handle));
}

EXPORT CUresult cuMemUnmap(CUdeviceptr address, size_t size)
{
    ENTER_INITIALIZED(cuMemUnmap);
    return leave(CALL_cuMemUnmap,
                 place(address, size, PROT_NONE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1));
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr address, size_t size, const int *access, size_t count)
{
    ENTER_INITIALIZED(cuMemSetAccess);
    REQUIRE(access != NULL && count == 1 && access[2] == 3, CUDA_ERROR_INVALID_VALUE);
    return leave(CALL_cuMemSetAccess,
                 mprotect((void *)address, size, PROT_READ | PROT_WRITE) == 0
                     ? CUDA_SUCCESS
                     : CUDA_ERROR_INVALID_VALUE);
}
