/* Streams and captures of the stand-in for libcuda.so.1. */
#define _GNU_SOURCE
#include "driver.h"

#include <stdlib.h>

enum { NON_BLOCKING = 1, HIGHEST_PRIORITY = -5 };

static struct stream *streams, *free_streams;
static uint64_t last_id = 16; /* no id is ever given twice, to whatever */

static atomic_uint_fast64_t last_thread;
static _Thread_local uint64_t this_thread;
static _Thread_local enum capture_mode exchange_mode;
static _Thread_local struct stream *per_thread[MAX_CONTEXTS];

static uint64_t thread_id(void)
{
    if (this_thread == 0) {
        this_thread = atomic_fetch_add(&last_thread, 1) + 1;
    }
    return this_thread;
}

/* The rule of cuThreadExchangeStreamCaptureMode for a "potentially unsafe" call. Like CUDA, it does
 * not only refuse the call, it also breaks the captures that stood in its way. */
CUresult refuse_in_capture(void)
{
    CUresult status = CUDA_SUCCESS;
    if (exchange_mode == MODE_RELAXED) {
        return status;
    }
    uint64_t thread = thread_id();
    pthread_mutex_lock(&standin_lock);
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
    pthread_mutex_unlock(&standin_lock);
    return status;
}

static struct stream *make_stream(struct context *context, unsigned flags, int priority)
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
    stream->priority = priority;
    stream->id = ++last_id;
    stream->capture = CAPTURE_NONE;
    stream->nodes = 0;
    return stream;
}

/* The object behind a stream argument; with the lock held. 0 and 1 are the legacy stream of the
 * current context, 2 is this thread's own. */
CUresult resolve(struct stream *argument, struct stream **stream)
{
    uintptr_t value = (uintptr_t)argument;
    if (value <= 2) {
        if (current_context() == NULL) {
            return CUDA_ERROR_INVALID_CONTEXT;
        }
        struct stream **place =
            value == 2 ? &per_thread[index_of(current_context())] : &current_context()->legacy;
        if (*place == NULL) {
            *place = make_stream(current_context(), 0, 0);
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

CUresult resolve_idle(struct stream *argument, struct stream **stream)
{
    REQUIRE_SUCCESS(resolve(argument, stream));
    if ((*stream)->capture != CAPTURE_NONE) {
        (*stream)->capture = CAPTURE_INVALIDATED;
        return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
    }
    return CUDA_SUCCESS;
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

CUresult identify(struct stream *argument, struct context **context, uint64_t *id)
{
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
    CUresult status = resolve(argument, &stream);
    if (status == CUDA_SUCCESS) {
        *context = stream->context;
        *id = stream->id;
    }
    pthread_mutex_unlock(&standin_lock);
    return status;
}

CUresult begin_launch(struct stream *argument, struct stream **stream, bool *captured)
{
    *captured = false;
    if (current_context() == NULL) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    REQUIRE_SUCCESS(resolve(argument, stream));
    if ((*stream)->context != current_context()) {
        return CUDA_ERROR_INVALID_HANDLE;
    }
    if ((*stream)->capture == CAPTURE_INVALIDATED) {
        return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
    }
    if ((*stream)->capture == CAPTURE_ACTIVE) {
        (*stream)->nodes++;
        *captured = true;
    } else if (legacy_meets_capture(*stream, true)) {
        return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    return CUDA_SUCCESS;
}

bool is_capturing(struct stream *argument)
{
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
    bool capturing =
        resolve(argument, &stream) == CUDA_SUCCESS && stream->capture != CAPTURE_NONE;
    pthread_mutex_unlock(&standin_lock);
    return capturing;
}

/* With the lock held; the graph is gone unless `graph` takes it. */
static void finish_capture(struct stream *stream, struct graph **graph)
{
    stream->capture = CAPTURE_NONE;
    if (graph != NULL) {
        *graph = stream->graph;
    } else if (stream->graph != NULL) {
        drop_graph(stream->graph);
    }
    stream->graph = NULL;
    stream->last_count = 0;
}

/* A test that failed inside a capture must not break the next one. */
void reset_streams(void)
{
    for (struct stream *stream = streams; stream != NULL; stream = stream->next) {
        finish_capture(stream, NULL);
    }
    exchange_mode = MODE_GLOBAL;
}

/* Of the capture that runs on the stream, or else of the last one. */
EXPORT long standin_captured_nodes(struct stream *argument)
{
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
    long nodes = resolve(argument, &stream) == CUDA_SUCCESS ? stream->nodes : -1;
    pthread_mutex_unlock(&standin_lock);
    return nodes;
}

/* The driver API */

static CUresult create_stream(CUstream *stream, unsigned flags, int priority)
{
    REQUIRE(stream != NULL && flags <= NON_BLOCKING, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(current_context() != NULL, CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE_SUCCESS(refuse_in_capture());
    pthread_mutex_lock(&standin_lock);
    struct stream *made = make_stream(current_context(), flags, priority);
    pthread_mutex_unlock(&standin_lock);
    REQUIRE(made != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    *stream = made;
    add_live(LIVE_STREAM, 1);
    log_call("cuStreamCreate 0x%jx %u", (uintmax_t)(uintptr_t)made, flags);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    ENTER_INITIALIZED(cuStreamCreate);
    return leave(CALL_cuStreamCreate, create_stream(stream, flags, 0));
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    ENTER_INITIALIZED(cuStreamCreateWithPriority);
    /* A priority outside of the device's range is moved into it. */
    priority = priority > 0 ? 0 : priority < HIGHEST_PRIORITY ? HIGHEST_PRIORITY : priority;
    return leave(CALL_cuStreamCreateWithPriority, create_stream(stream, flags, priority));
}

EXPORT CUresult cuStreamGetPriority(CUstream argument, int *priority)
{
    ENTER_INITIALIZED(cuStreamGetPriority);
    REQUIRE(priority != NULL, CUDA_ERROR_INVALID_VALUE);
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
    CUresult status = resolve(argument, &stream);
    if (status == CUDA_SUCCESS) {
        *priority = stream->priority;
    }
    pthread_mutex_unlock(&standin_lock);
    return leave(CALL_cuStreamGetPriority, status);
}

EXPORT CUresult cuStreamDestroy_v2(CUstream argument)
{
    ENTER_INITIALIZED(cuStreamDestroy);
    REQUIRE((uintptr_t)argument > 2, CUDA_ERROR_INVALID_HANDLE);
    REQUIRE_SUCCESS(refuse_in_capture());
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
    CUresult status = resolve(argument, &stream);
    if (status == CUDA_SUCCESS) {
        stream->alive = false;
        finish_capture(stream, NULL);
        stream->next_free = free_streams;
        free_streams = stream;
    }
    pthread_mutex_unlock(&standin_lock);
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
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
    /* Undocumented: driver 580 takes the question for an unsafe call. */
    CUresult status = resolve_idle(argument, &stream);
    if (status == CUDA_SUCCESS) {
        *id = stream->id;
    }
    pthread_mutex_unlock(&standin_lock);
    return leave(CALL_cuStreamGetId, status);
}

EXPORT CUresult cuStreamIsCapturing(CUstream argument, int *state)
{
    ENTER_INITIALIZED(cuStreamIsCapturing);
    REQUIRE(state != NULL, CUDA_ERROR_INVALID_VALUE);
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
    CUresult status = resolve(argument, &stream);
    if (status == CUDA_SUCCESS) {
        *state = (int)stream->capture;
        if (legacy_meets_capture(stream, false)) {
            status = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
        }
    }
    pthread_mutex_unlock(&standin_lock);
    return leave(CALL_cuStreamIsCapturing, status);
}

EXPORT CUresult cuStreamGetCaptureInfo_v2(CUstream argument, int *state, uint64_t *id,
                                          struct graph **graph, struct node *const **last,
                                          size_t *last_count)
{
    ENTER_INITIALIZED(cuStreamGetCaptureInfo);
    REQUIRE(state != NULL, CUDA_ERROR_INVALID_VALUE);
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
    CUresult status = resolve(argument, &stream);
    if (status == CUDA_SUCCESS && legacy_meets_capture(stream, false)) {
        status = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    } else if (status == CUDA_SUCCESS) {
        *state = (int)stream->capture;
        if (stream->capture == CAPTURE_ACTIVE) {
            *(id == NULL ? &(uint64_t){0} : id) = stream->capture_id;
            *(graph == NULL ? &(struct graph *){NULL} : graph) = stream->graph;
            *(last == NULL ? &(struct node *const *){NULL} : last) = stream->last;
            *(last_count == NULL ? &(size_t){0} : last_count) = stream->last_count;
        }
    }
    pthread_mutex_unlock(&standin_lock);
    return leave(CALL_cuStreamGetCaptureInfo, status);
}

/* Flag 1 replaces what the next launch waits for. */
EXPORT CUresult cuStreamUpdateCaptureDependencies_v2(CUstream argument, struct node *const *last,
                                                     const unsigned char (*data)[8], size_t count,
                                                     unsigned flags)
{
    ENTER_INITIALIZED(cuStreamUpdateCaptureDependencies);
    REQUIRE(flags == 1 && data == NULL && (last != NULL || count == 0) && count <= MAX_LAST,
            CUDA_ERROR_INVALID_VALUE);
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
    CUresult status = resolve(argument, &stream);
    if (status == CUDA_SUCCESS && stream->capture != CAPTURE_ACTIVE) {
        status = CUDA_ERROR_ILLEGAL_STATE;
    }
    for (size_t i = 0; status == CUDA_SUCCESS && i < count; i++) {
        bool is_twice = false;
        for (size_t j = 0; j < i; j++) {
            is_twice = is_twice || last[i] == last[j];
        }
        if (is_twice || last[i]->graph != stream->graph) {
            status = CUDA_ERROR_INVALID_VALUE;
        }
    }
    for (size_t i = 0; status == CUDA_SUCCESS && i < count; i++) {
        stream->last[i] = last[i];
    }
    if (status == CUDA_SUCCESS) {
        stream->last_count = count;
    }
    pthread_mutex_unlock(&standin_lock);
    return leave(CALL_cuStreamUpdateCaptureDependencies, status);
}

EXPORT CUresult cuStreamGetFlags(CUstream argument, unsigned *flags)
{
    ENTER_INITIALIZED(cuStreamGetFlags);
    REQUIRE(flags != NULL, CUDA_ERROR_INVALID_VALUE);
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
    /* As with the id: seen on driver 580. */
    CUresult status = resolve_idle(argument, &stream);
    if (status == CUDA_SUCCESS) {
        *flags = stream->flags;
    }
    pthread_mutex_unlock(&standin_lock);
    return leave(CALL_cuStreamGetFlags, status);
}

EXPORT CUresult cuStreamBeginCapture_v2(CUstream argument, int mode)
{
    ENTER_INITIALIZED(cuStreamBeginCapture);
    REQUIRE(mode >= MODE_GLOBAL && mode <= MODE_RELAXED, CUDA_ERROR_INVALID_VALUE);
    REQUIRE((uintptr_t)argument > 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
    CUresult status = resolve(argument, &stream);
    if (status == CUDA_SUCCESS && stream->capture != CAPTURE_NONE) {
        status = CUDA_ERROR_ILLEGAL_STATE;
    } else if (status == CUDA_SUCCESS) {
        stream->capture = CAPTURE_ACTIVE;
        stream->mode = (enum capture_mode)mode;
        stream->owner = thread_id();
        stream->capture_id = ++last_id;
        stream->nodes = 0;
        stream->graph = make_graph();
        stream->last_count = 0;
    }
    pthread_mutex_unlock(&standin_lock);
    return leave(CALL_cuStreamBeginCapture, status);
}

EXPORT CUresult cuStreamEndCapture(CUstream argument, void **graph)
{
    ENTER_INITIALIZED(cuStreamEndCapture);
    REQUIRE(graph != NULL, CUDA_ERROR_INVALID_VALUE);
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
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
        *graph = NULL;
        finish_capture(stream, status == CUDA_SUCCESS ? (struct graph **)graph : NULL);
        if (status == CUDA_SUCCESS) {
            add_live(LIVE_GRAPH, 1);
        }
    }
    pthread_mutex_unlock(&standin_lock);
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

EXPORT CUresult cuStreamSynchronize(CUstream argument)
{
    ENTER_INITIALIZED(cuStreamSynchronize);
    struct stream *stream = NULL;
    pthread_mutex_lock(&standin_lock);
    CUresult status = resolve_idle(argument, &stream);
    if (status == CUDA_SUCCESS && legacy_meets_capture(stream, true)) {
        status = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    }
    pthread_mutex_unlock(&standin_lock);
    REQUIRE_SUCCESS(status);
    log_call("cuStreamSynchronize 0x%jx", (uintmax_t)(uintptr_t)argument);
    return leave(CALL_cuStreamSynchronize, CUDA_SUCCESS);
}
