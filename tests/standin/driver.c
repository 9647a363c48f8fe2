/* A stand-in for libcuda.so.1: device memory is host memory, every stream runs at once.
 *
 * One mutex guards contexts, streams, memory and the log. It is never held while a launch computes.
 */
#define _GNU_SOURCE
#include "standin.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MAX_DEVICES = 8,
    MAX_CONTEXTS = 64, /* the first MAX_DEVICES are the primary ones, by device */
    MAX_FAILURES = 64,
    LOG_LINES = 4096,
    LOG_WIDTH = 160,
    MAX_QUARANTINE = 256,
    NON_BLOCKING = 1,
};
#define MEMORY_OF_A_DEVICE ((size_t)16 << 30)
#define FILLED_WHEN_NEW ((size_t)64 << 20) /* larger blocks stay untouched: pages cost time */

enum capture_mode { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };
enum capture { CAPTURE_NONE, CAPTURE_ACTIVE, CAPTURE_INVALIDATED };

struct stream {
    struct stream *next;      /* of all that were ever made: none is returned to malloc */
    struct stream *next_free; /* the last destroyed is the next created, so addresses come back */
    bool alive;
    struct context *context;
    unsigned flags;
    uint64_t id;
    enum capture capture;
    enum capture_mode mode;
    uint64_t owner; /* the thread that began the capture */
    long nodes;
};

struct context {
    bool made;
    int device;
    struct stream *legacy;
};

struct block {
    struct block *next;
    uintptr_t address;
    size_t size;
    struct context *context;
};

struct failure {
    enum call call;
    long attempt;
    int status;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static atomic_bool initialized;
static int device_count = 2;
static int sm[MAX_DEVICES] = {900, 900, 900, 900, 900, 900, 900, 900};
static struct context contexts[MAX_CONTEXTS];
static struct stream *streams, *free_streams;
static uint64_t last_id = 16;   /* no id is ever given twice, to whatever */
static struct block *blocks;    /* live */
static struct block *freed, **freed_tail = &freed; /* kept a while, so that late users are seen */
static int freed_count;
static size_t freed_bytes;
static char log_lines[LOG_LINES][LOG_WIDTH];
static size_t log_end;
static struct failure failures[MAX_FAILURES];
static atomic_int failure_count;
static atomic_long attempts[CALL_COUNT], successes[CALL_COUNT];
static atomic_long live[LIVE_COUNT], violations[VIOLATION_COUNT];
static atomic_long delay;

static atomic_uint_fast64_t last_thread;
static _Thread_local uint64_t this_thread;
static _Thread_local struct context *current;
static _Thread_local enum capture_mode exchange_mode;
static _Thread_local struct stream *per_thread[MAX_CONTEXTS];

#define STANDIN_CALL_NAME(name) #name,
static const char *const call_names[] = {STANDIN_CALLS(STANDIN_CALL_NAME)};
static const char *const live_names[] = {"handle", "plan", "pack", "memory", "stream"};
static const char *const violation_names[] = {"shared", "destroyed", "memory", "stale stream"};

static int find(const char *const *names, int count, const char *name)
{
    size_t length = strlen(name);
    if (length > 3 && strcmp(name + length - 3, "_v2") == 0) {
        length -= 3;
    }
    for (int i = 0; i < count; i++) {
        if (strlen(names[i]) == length && strncmp(names[i], name, length) == 0) {
            return i;
        }
    }
    return -1;
}

/* Services */

static int enter(enum call call)
{
    long attempt = atomic_fetch_add(&attempts[call], 1) + 1;
    if (atomic_load(&failure_count) == 0) {
        return 0;
    }
    int status = 0;
    pthread_mutex_lock(&lock);
    int count = atomic_load(&failure_count);
    for (int i = 0; i < count; i++) {
        if (failures[i].call == call && failures[i].attempt == attempt) {
            status = failures[i].status;
            failures[i] = failures[count - 1];
            atomic_store(&failure_count, count - 1);
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static void succeed(enum call call) { atomic_fetch_add(&successes[call], 1); }

static void add_live(enum live_kind kind, int change) { atomic_fetch_add(&live[kind], change); }

static void violate(enum violation kind) { atomic_fetch_add(&violations[kind], 1); }

static void log_locked(const char *format, va_list arguments)
{
    vsnprintf(log_lines[log_end++ % LOG_LINES], LOG_WIDTH, format, arguments);
}

__attribute__((format(printf, 1, 2))) static void log_call(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    pthread_mutex_lock(&lock);
    log_locked(format, arguments);
    pthread_mutex_unlock(&lock);
    va_end(arguments);
}

static struct context *current_context(void) { return current; }

static int device_of(struct context *context) { return context->device; }

static int sm_of(struct context *context)
{
    pthread_mutex_lock(&lock);
    int value = sm[context->device];
    pthread_mutex_unlock(&lock);
    return value;
}

static uint64_t thread_id(void)
{
    if (this_thread == 0) {
        this_thread = atomic_fetch_add(&last_thread, 1) + 1;
    }
    return this_thread;
}

/* The rule of cuThreadExchangeStreamCaptureMode for a "potentially unsafe" call. Like CUDA, it does
 * not only refuse the call, it also breaks the captures that stood in its way. */
static CUresult refuse_in_capture(void)
{
    CUresult status = CUDA_SUCCESS;
    if (exchange_mode == MODE_RELAXED) {
        return status;
    }
    uint64_t thread = thread_id();
    pthread_mutex_lock(&lock);
    for (struct stream *stream = streams; stream != NULL; stream = stream->next) {
        if (stream->capture != CAPTURE_ACTIVE) {
            continue;
        }
        bool forbids = stream->owner == thread
                           ? stream->mode != MODE_RELAXED
                           : stream->mode == MODE_GLOBAL && exchange_mode == MODE_GLOBAL;
        if (forbids) {
            stream->capture = CAPTURE_INVALIDATED;
            status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static struct stream *make_stream(struct context *context, unsigned flags)
{
    struct stream *stream = free_streams;
    if (stream != NULL) {
        free_streams = stream->next_free;
    } else {
        stream = calloc(1, sizeof *stream);
        if (stream == NULL) {
            return NULL;
        }
        stream->next = streams;
        streams = stream;
    }
    stream->alive = true;
    stream->context = context;
    stream->flags = flags;
    stream->id = ++last_id;
    stream->capture = CAPTURE_NONE;
    stream->nodes = 0;
    return stream;
}

/* The object behind a stream argument; with the lock held. 0 and 1 are the legacy stream of the
 * current context, 2 is this thread's own. */
static CUresult resolve(struct stream *argument, struct stream **stream)
{
    uintptr_t value = (uintptr_t)argument;
    if (value <= 2) {
        if (current == NULL) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        struct stream **place =
            value == 2 ? &per_thread[current - contexts] : &current->legacy;
        if (*place == NULL) {
            *place = make_stream(current, 0);
        }
        *stream = *place;
        return *place == NULL ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
    }
    for (struct stream *known = streams; known != NULL; known = known->next) {
        if (known == argument && known->alive) {
            *stream = known;
            return CUDA_SUCCESS;
        }
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

/* The legacy stream waits for every blocking stream of its context, which a capture cannot do. */
static bool legacy_meets_capture(struct stream *stream, bool invalidate)
{
    bool met = false;
    if (stream != stream->context->legacy) {
        return false;
    }
    for (struct stream *other = streams; other != NULL; other = other->next) {
        if (other->capture == CAPTURE_ACTIVE && other->context == stream->context &&
            !(other->flags & NON_BLOCKING)) {
            met = true;
            if (invalidate) {
                other->capture = CAPTURE_INVALIDATED;
            }
        }
    }
    return met;
}

static CUresult identify(struct stream *argument, struct context **context, uint64_t *id)
{
    struct stream *stream = NULL;
    pthread_mutex_lock(&lock);
    CUresult status = resolve(argument, &stream);
    if (status == CUDA_SUCCESS) {
        *context = stream->context;
        *id = stream->id;
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static CUresult launch(struct stream *argument, bool *captured)
{
    struct stream *stream = NULL;
    *captured = false;
    if (current == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    pthread_mutex_lock(&lock);
    CUresult status = resolve(argument, &stream);
    if (status == CUDA_SUCCESS) {
        if (stream->context != current) {
            status = CUDA_ERROR_INVALID_HANDLE;
        } else if (stream->capture == CAPTURE_INVALIDATED) {
            status = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        } else if (stream->capture == CAPTURE_ACTIVE) {
            stream->nodes++;
            *captured = true;
        } else if (legacy_meets_capture(stream, true)) {
            status = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static enum place locate(uintptr_t address, size_t size, struct context **context)
{
    enum place where = BLOCK_HOST;
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
    return where;
}

static long execute_delay(void) { return atomic_load(&delay); }

static void reset(void)
{
    pthread_mutex_lock(&lock);
    device_count = 2;
    for (int i = 0; i < MAX_DEVICES; i++) {
        sm[i] = 900;
    }
    for (int i = 0; i < CALL_COUNT; i++) {
        atomic_store(&attempts[i], 0);
        atomic_store(&successes[i], 0);
    }
    for (int i = 0; i < VIOLATION_COUNT; i++) {
        atomic_store(&violations[i], 0);
    }
    /* A test that failed inside a capture must not break the next one. */
    for (struct stream *stream = streams; stream != NULL; stream = stream->next) {
        stream->capture = CAPTURE_NONE;
    }
    exchange_mode = MODE_GLOBAL;
    atomic_store(&failure_count, 0);
    atomic_store(&delay, 0);
    log_end = 0;
    pthread_mutex_unlock(&lock);
}

EXPORT const struct standin_services *standin_services(void)
{
    static const struct standin_services services = {
        enter, succeed, log_call, add_live, violate, current_context, device_of, sm_of,
        refuse_in_capture, identify, launch, locate, execute_delay, reset,
    };
    return &services;
}

/* Control, for the tests */

EXPORT void standin_reset(void) { reset(); }

EXPORT int standin_fail(const char *name, int nth, int status)
{
    int call = find(call_names, CALL_COUNT, name);
    if (call < 0 || nth < 1) {
        return -1;
    }
    pthread_mutex_lock(&lock);
    int count = atomic_load(&failure_count);
    if (count < MAX_FAILURES) {
        failures[count] = (struct failure){call, atomic_load(&attempts[call]) + nth, status};
        atomic_store(&failure_count, count + 1);
    }
    pthread_mutex_unlock(&lock);
    return count < MAX_FAILURES ? 0 : -1;
}

EXPORT long standin_calls(const char *name)
{
    int call = find(call_names, CALL_COUNT, name);
    return call < 0 ? -1 : atomic_load(&successes[call]);
}

EXPORT long standin_live(const char *name)
{
    int kind = find(live_names, LIVE_COUNT, name);
    return kind < 0 ? -1 : atomic_load(&live[kind]);
}

/* Of one kind, or with NULL of all that are errors whatever the test is about. */
EXPORT long standin_violations(const char *name)
{
    if (name == NULL) {
        return atomic_load(&violations[VIOLATION_SHARED]) +
               atomic_load(&violations[VIOLATION_DESTROYED]) +
               atomic_load(&violations[VIOLATION_MEMORY]);
    }
    int kind = find(violation_names, VIOLATION_COUNT, name);
    return kind < 0 ? -1 : atomic_load(&violations[kind]);
}

/* Whole lines, oldest first; returns the bytes needed for all of them, the NUL included. */
EXPORT size_t standin_log(char *text, size_t size)
{
    size_t needed = 1, written = 0;
    pthread_mutex_lock(&lock);
    for (size_t i = log_end > LOG_LINES ? log_end - LOG_LINES : 0; i < log_end; i++) {
        const char *line = log_lines[i % LOG_LINES];
        size_t length = strlen(line);
        needed += length + 1;
        if (needed <= size) {
            memcpy(text + written, line, length);
            text[written + length] = '\n';
            written += length + 1;
        }
    }
    pthread_mutex_unlock(&lock);
    if (size > 0) {
        text[written] = '\0';
    }
    return needed;
}

EXPORT int standin_set_device_count(int count)
{
    if (count < 0 || count > MAX_DEVICES) {
        return -1;
    }
    pthread_mutex_lock(&lock);
    device_count = count;
    pthread_mutex_unlock(&lock);
    return 0;
}

EXPORT int standin_set_device_sm(int device, int major, int minor)
{
    if (device < 0 || device >= MAX_DEVICES) {
        return -1;
    }
    pthread_mutex_lock(&lock);
    sm[device] = major * 100 + minor * 10;
    pthread_mutex_unlock(&lock);
    return 0;
}

EXPORT void standin_set_execute_delay(long microseconds) { atomic_store(&delay, microseconds); }

/* Of the capture that runs on the stream, or else of the last one. */
EXPORT long standin_captured_nodes(struct stream *argument)
{
    struct stream *stream = NULL;
    pthread_mutex_lock(&lock);
    long nodes = resolve(argument, &stream) == CUDA_SUCCESS ? stream->nodes : -1;
    pthread_mutex_unlock(&lock);
    return nodes;
}

/* A context that is not its device's primary one; it lives as long as the process. */
EXPORT struct context *standin_new_context(int device)
{
    struct context *context = NULL;
    pthread_mutex_lock(&lock);
    for (int i = MAX_DEVICES; device >= 0 && device < device_count && i < MAX_CONTEXTS; i++) {
        if (!contexts[i].made) {
            context = &contexts[i];
            *context = (struct context){.made = true, .device = device};
            break;
        }
    }
    pthread_mutex_unlock(&lock);
    return context;
}

/* The driver API */

#define ENTER(name)                                                                                \
    do {                                                                                           \
        int injected = enter(CALL_##name);                                                         \
        if (injected != 0) {                                                                       \
            return injected;                                                                       \
        }                                                                                          \
    } while (0)
#define ENTER_INITIALIZED(name)                                                                    \
    do {                                                                                           \
        ENTER(name);                                                                               \
        if (!atomic_load(&initialized)) {                                                          \
            return CUDA_ERROR_NOT_INITIALIZED;                                                     \
        }                                                                                          \
    } while (0)
#define REQUIRE(condition, status)                                                                 \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return status;                                                                         \
        }                                                                                          \
    } while (0)
#define REQUIRE_SUCCESS(call)                                                                      \
    do {                                                                                           \
        CUresult status_ = call;                                                                   \
        if (status_ != CUDA_SUCCESS) {                                                             \
            return status_;                                                                        \
        }                                                                                          \
    } while (0)

static CUresult leave(enum call call, CUresult status)
{
    if (status == CUDA_SUCCESS) {
        succeed(call);
    }
    return status;
}

static int devices(void)
{
    pthread_mutex_lock(&lock);
    int count = device_count;
    pthread_mutex_unlock(&lock);
    return count;
}

EXPORT CUresult cuInit(unsigned flags)
{
    ENTER(cuInit);
    REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(devices() > 0, CUDA_ERROR_NO_DEVICE);
    atomic_store(&initialized, true);
    return leave(CALL_cuInit, CUDA_SUCCESS);
}

EXPORT CUresult cuDriverGetVersion(int *version)
{
    ENTER(cuDriverGetVersion);
    REQUIRE(version != NULL, CUDA_ERROR_INVALID_VALUE);
    *version = 13000;
    return leave(CALL_cuDriverGetVersion, CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
    ENTER_INITIALIZED(cuDeviceGetCount);
    REQUIRE(count != NULL, CUDA_ERROR_INVALID_VALUE);
    *count = devices();
    return leave(CALL_cuDeviceGetCount, CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    ENTER_INITIALIZED(cuDeviceGet);
    REQUIRE(device != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(ordinal >= 0 && ordinal < devices(), CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return leave(CALL_cuDeviceGet, CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetAttribute(int *value, int attribute, CUdevice device)
{
    ENTER_INITIALIZED(cuDeviceGetAttribute);
    REQUIRE(value != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(device >= 0 && device < devices(), CUDA_ERROR_INVALID_DEVICE);
    int version = sm_of(&(struct context){.device = device});
    switch (attribute) {
    case 16: *value = 132; break; /* multiprocessors */
    case 75: *value = version / 100; break;
    case 76: *value = version % 100 / 10; break;
    default: return CUDA_ERROR_INVALID_VALUE;
    }
    return leave(CALL_cuDeviceGetAttribute, CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER_INITIALIZED(cuDevicePrimaryCtxRetain);
    REQUIRE(context != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(device >= 0 && device < devices(), CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&lock);
    contexts[device].made = true;
    contexts[device].device = device;
    pthread_mutex_unlock(&lock);
    *context = &contexts[device];
    return leave(CALL_cuDevicePrimaryCtxRetain, CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *context)
{
    ENTER_INITIALIZED(cuCtxGetCurrent);
    REQUIRE(context != NULL, CUDA_ERROR_INVALID_VALUE);
    *context = current;
    return leave(CALL_cuCtxGetCurrent, CUDA_SUCCESS);
}

EXPORT CUresult cuCtxSetCurrent(CUcontext context)
{
    ENTER_INITIALIZED(cuCtxSetCurrent);
    bool known = context == NULL;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        known = known || (context == &contexts[i] && contexts[i].made);
    }
    pthread_mutex_unlock(&lock);
    REQUIRE(known, CUDA_ERROR_INVALID_CONTEXT);
    current = context;
    log_call("cuCtxSetCurrent 0x%jx", (uintmax_t)(uintptr_t)context);
    return leave(CALL_cuCtxSetCurrent, CUDA_SUCCESS);
}

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
    ENTER_INITIALIZED(cuCtxGetDevice);
    REQUIRE(device != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(current != NULL, CUDA_ERROR_INVALID_CONTEXT);
    *device = current->device;
    return leave(CALL_cuCtxGetDevice, CUDA_SUCCESS);
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    ENTER_INITIALIZED(cuStreamCreate);
    REQUIRE(stream != NULL && flags <= NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(current != NULL, CUDA_ERROR_INVALID_CONTEXT);
    pthread_mutex_lock(&lock);
    struct stream *made = make_stream(current, flags);
    pthread_mutex_unlock(&lock);
    REQUIRE(made != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    *stream = made;
    add_live(LIVE_STREAM, 1);
    log_call("cuStreamCreate 0x%jx %u", (uintmax_t)(uintptr_t)made, flags);
    return leave(CALL_cuStreamCreate, CUDA_SUCCESS);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream argument)
{
    ENTER_INITIALIZED(cuStreamDestroy);
    REQUIRE((uintptr_t)argument > 2, CUDA_ERROR_INVALID_HANDLE);
    struct stream *stream = NULL;
    pthread_mutex_lock(&lock);
    CUresult status = resolve(argument, &stream);
    if (status == CUDA_SUCCESS) {
        stream->alive = false;
        stream->capture = CAPTURE_NONE;
        stream->next_free = free_streams;
        free_streams = stream;
    }
    pthread_mutex_unlock(&lock);
    REQUIRE_SUCCESS(status);
    add_live(LIVE_STREAM, -1);
    log_call("cuStreamDestroy 0x%jx", (uintmax_t)(uintptr_t)argument);
    return leave(CALL_cuStreamDestroy, CUDA_SUCCESS);
}

EXPORT CUresult cuStreamGetCtx(CUstream argument, CUcontext *context)
{
    ENTER_INITIALIZED(cuStreamGetCtx);
    REQUIRE(context != NULL, CUDA_ERROR_INVALID_VALUE);
    uint64_t id;
    return leave(CALL_cuStreamGetCtx, identify(argument, context, &id));
}

EXPORT CUresult cuStreamGetId(CUstream argument, unsigned long long *id)
{
    ENTER_INITIALIZED(cuStreamGetId);
    REQUIRE(id != NULL, CUDA_ERROR_INVALID_VALUE);
    struct context *context;
    uint64_t value;
    REQUIRE_SUCCESS(identify(argument, &context, &value));
    *id = value;
    return leave(CALL_cuStreamGetId, CUDA_SUCCESS);
}

EXPORT CUresult cuStreamIsCapturing(CUstream argument, int *state)
{
    ENTER_INITIALIZED(cuStreamIsCapturing);
    REQUIRE(state != NULL, CUDA_ERROR_INVALID_VALUE);
    struct stream *stream = NULL;
    pthread_mutex_lock(&lock);
    CUresult status = resolve(argument, &stream);
    if (status == CUDA_SUCCESS) {
        *state = (int)stream->capture;
        if (legacy_meets_capture(stream, false)) {
            status = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    pthread_mutex_unlock(&lock);
    return leave(CALL_cuStreamIsCapturing, status);
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream argument, int mode)
{
    ENTER_INITIALIZED(cuStreamBeginCapture);
    REQUIRE(mode >= MODE_GLOBAL && mode <= MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    REQUIRE((uintptr_t)argument > 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct stream *stream = NULL;
    pthread_mutex_lock(&lock);
    CUresult status = resolve(argument, &stream);
    if (status == CUDA_SUCCESS && stream->capture != CAPTURE_NONE) {
        status = CUDA_ERROR_ILLEGAL_STATE;
    } else if (status == CUDA_SUCCESS) {
        stream->capture = CAPTURE_ACTIVE;
        stream->mode = (enum capture_mode)mode;
        stream->owner = thread_id();
        stream->nodes = 0;
    }
    pthread_mutex_unlock(&lock);
    return leave(CALL_cuStreamBeginCapture, status);
}

EXPORT CUresult cuStreamEndCapture(CUstream argument, void **graph)
{
    ENTER_INITIALIZED(cuStreamEndCapture);
    REQUIRE(graph != NULL, CUDA_ERROR_INVALID_VALUE);
    struct stream *stream = NULL;
    pthread_mutex_lock(&lock);
    CUresult status = resolve(argument, &stream);
    if (status != CUDA_SUCCESS) {
        /* nothing to end */
    } else if (stream->capture == CAPTURE_NONE) {
        status = CUDA_ERROR_ILLEGAL_STATE;
    } else if (stream->mode != MODE_RELAXED && stream->owner != thread_id()) {
        status = CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
    } else {
        if (stream->capture == CAPTURE_INVALIDATED) {
            status = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
        }
        stream->capture = CAPTURE_NONE;
        /* A token: no call takes a graph. */
        *graph = status == CUDA_SUCCESS ? (void *)(uintptr_t)++last_id : NULL;
    }
    pthread_mutex_unlock(&lock);
    return leave(CALL_cuStreamEndCapture, status);
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    ENTER_INITIALIZED(cuThreadExchangeStreamCaptureMode);
    REQUIRE(mode != NULL && *mode >= MODE_GLOBAL && *mode <= MODE_RELAXED,
            CUDA_ERROR_INVALID_VALUE);
    enum capture_mode previous = exchange_mode;
    exchange_mode = (enum capture_mode)*mode;
    *mode = (int)previous;
    return leave(CALL_cuThreadExchangeStreamCaptureMode, CUDA_SUCCESS);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *address, size_t size)
{
    ENTER_INITIALIZED(cuMemAlloc);
    REQUIRE(address != NULL && size > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(current != NULL, CUDA_ERROR_INVALID_CONTEXT);
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
    pthread_mutex_lock(&lock);
    *block = (struct block){blocks, (uintptr_t)memory, size, current};
    blocks = block;
    pthread_mutex_unlock(&lock);
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
    REQUIRE(current != NULL, CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE_SUCCESS(refuse_in_capture());
    struct block *found = NULL;
    pthread_mutex_lock(&lock);
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
    pthread_mutex_unlock(&lock);
    if (found == NULL) {
        violate(VIOLATION_MEMORY);
        return CUDA_ERROR_INVALID_VALUE;
    }
    add_live(LIVE_MEMORY, -1);
    log_call("cuMemFree 0x%jx", (uintmax_t)address);
    return leave(CALL_cuMemFree, CUDA_SUCCESS);
}

/* Checks a write of `size` bytes as CUDA would, and says whether the stream only captures it. */
static CUresult begin_write(CUdeviceptr address, size_t size, CUstream stream, bool *captured)
{
    struct context *context;
    REQUIRE(address != 0, CUDA_ERROR_INVALID_VALUE);
    enum place where = locate(address, size, &context);
    if (where == BLOCK_OUTSIDE || where == BLOCK_FREED) {
        violate(VIOLATION_MEMORY);
        return CUDA_ERROR_INVALID_VALUE;
    }
    return launch(stream, captured);
}

EXPORT CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream)
{
    ENTER_INITIALIZED(cuMemcpyHtoDAsync);
    bool captured;
    REQUIRE(from != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE_SUCCESS(begin_write(to, size, stream, &captured));
    if (!captured) {
        memcpy((void *)to, from, size);
    }
    log_call("cuMemcpyHtoDAsync 0x%jx 0x%jx %zu 0x%jx", (uintmax_t)to,
             (uintmax_t)(uintptr_t)from, size, (uintmax_t)(uintptr_t)stream);
    return leave(CALL_cuMemcpyHtoDAsync, CUDA_SUCCESS);
}

EXPORT CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t size, CUstream stream)
{
    ENTER_INITIALIZED(cuMemsetD8Async);
    bool captured;
    REQUIRE_SUCCESS(begin_write(to, size, stream, &captured));
    if (!captured) {
        memset((void *)to, value, size);
    }
    log_call("cuMemsetD8Async 0x%jx %u %zu 0x%jx", (uintmax_t)to, value, size,
             (uintmax_t)(uintptr_t)stream);
    return leave(CALL_cuMemsetD8Async, CUDA_SUCCESS);
}

EXPORT CUresult cuStreamSynchronize(CUstream argument)
{
    ENTER_INITIALIZED(cuStreamSynchronize);
    struct stream *stream = NULL;
    pthread_mutex_lock(&lock);
    CUresult status = resolve(argument, &stream);
    if (status == CUDA_SUCCESS && stream->capture != CAPTURE_NONE) {
        stream->capture = CAPTURE_INVALIDATED;
        status = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    } else if (status == CUDA_SUCCESS && legacy_meets_capture(stream, true)) {
        status = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    pthread_mutex_unlock(&lock);
    REQUIRE_SUCCESS(status);
    log_call("cuStreamSynchronize 0x%jx", (uintmax_t)(uintptr_t)argument);
    return leave(CALL_cuStreamSynchronize, CUDA_SUCCESS);
}

static const struct {
    CUresult status;
    const char *name, *text;
} errors[] = {
    {CUDA_SUCCESS, "CUDA_SUCCESS", "no error"},
    {CUDA_ERROR_INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {CUDA_ERROR_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {CUDA_ERROR_NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {CUDA_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {CUDA_ERROR_INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {CUDA_ERROR_INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {CUDA_ERROR_INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {CUDA_ERROR_ILLEGAL_STATE, "CUDA_ERROR_ILLEGAL_STATE",
     "the operation cannot be performed in the present state"},
    {CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
     "operation not permitted when stream is capturing"},
    {CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
     "operation failed due to a previous error during capture"},
    {CUDA_ERROR_STREAM_CAPTURE_IMPLICIT, "CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
     "operation would make the legacy stream depend on a capturing blocking stream"},
    {CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, "CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
     "attempt to terminate a thread-local capture sequence from another thread"},
};

static CUresult describe(CUresult status, const char **text, bool name)
{
    REQUIRE(text != NULL, CUDA_ERROR_INVALID_VALUE);
    *text = NULL;
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++) {
        if (errors[i].status == status) {
            *text = name ? errors[i].name : errors[i].text;
        }
    }
    return *text == NULL ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT CUresult cuGetErrorName(CUresult status, const char **text)
{
    ENTER(cuGetErrorName);
    return leave(CALL_cuGetErrorName, describe(status, text, true));
}

EXPORT CUresult cuGetErrorString(CUresult status, const char **text)
{
    ENTER(cuGetErrorString);
    return leave(CALL_cuGetErrorString, describe(status, text, false));
}
