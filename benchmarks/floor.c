/* The floor a binding is measured against: the same cuDNN calls, made from C and timed in C.
 *
 * host_overhead.py compiles this with `gcc -O2 -shared -fPIC` and calls it through ctypes. The few
 * prototypes and constants it needs are declared here, so that no CUDA header has to be installed.
 * Functions return 0, a cuDNN status, or one of the codes below; floor_error() says which.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

typedef void *descriptor_t;

enum { EXECUTION_PLAN_DESCRIPTOR = 5, VARIANT_PACK_DESCRIPTOR = 16 };
enum { TYPE_HANDLE = 0, TYPE_INT64 = 3, TYPE_VOID_PTR = 6, TYPE_CHAR = 24 };
enum { PLAN_HANDLE = 400, PLAN_WORKSPACE_SIZE = 402, PLAN_JSON = 405 };
enum { PACK_UIDS = 1000, PACK_POINTERS = 1001, PACK_WORKSPACE = 1003 };
enum { PACK_OVERRIDE_UIDS = 1010, PACK_OVERRIDE_SHAPES = 1011, PACK_OVERRIDE_STRIDES = 1012 };
enum { NO_LIBRARY = 100001, DRIVER_FAILED = 100002 };
enum { MAX_MEMSETS = 8 };

static int (*create_handle)(void **);
static int (*set_stream)(void *, void *);
static int (*create_descriptor)(int, descriptor_t *);
static int (*destroy_descriptor)(descriptor_t);
static int (*set_attribute)(descriptor_t, int, int, int64_t, const void *);
static int (*get_attribute)(descriptor_t, int, int, int64_t, int64_t *, void *);
static int (*finalize)(descriptor_t);
static int (*execute)(void *, descriptor_t, descriptor_t);
static const char *(*error_string)(int);
static int (*workspace_query)(void *, descriptor_t, descriptor_t, size_t *); /* or NULL: old */
static int (*stream_synchronize)(void *);
static int (*memset_async)(uintptr_t, unsigned char, size_t, void *);

/* Shapes and strides of one call; the lists are C++ vectors (override_floor.cpp). */
struct overrides {
    int64_t count;
    const int64_t *uids;
    const int64_t *ranks;
    const void *shapes, *strides; /* the vectors' own addresses are what cuDNN takes */
    int64_t *const *rows;         /* of all shapes, then of all strides */
};

/* Some plans have the caller zero parts of the workspace before each call. */
static int memset_count;
static uintptr_t memset_addresses[MAX_MEMSETS];
static size_t memset_sizes[MAX_MEMSETS];

#define TRY(call)                 \
    do {                          \
        int status_ = (call);     \
        if (status_) return status_; \
    } while (0)

static int load(void) {
    /* What the process has loaded already: a second cuDNN would be another one than the frontend's. */
    void *cudnn = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD);
    void *cuda = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!cudnn) cudnn = dlopen("libcudnn.so.9", RTLD_NOW);
    if (!cuda) cuda = dlopen("libcuda.so.1", RTLD_NOW);
    if (!cudnn || !cuda) return NO_LIBRARY;
#define RESOLVE(library, pointer, name) \
    if (!(*(void **)&pointer = dlsym(library, name))) return NO_LIBRARY
    RESOLVE(cudnn, create_handle, "cudnnCreate");
    RESOLVE(cudnn, set_stream, "cudnnSetStream");
    RESOLVE(cudnn, error_string, "cudnnGetErrorString");
    RESOLVE(cudnn, create_descriptor, "cudnnBackendCreateDescriptor");
    RESOLVE(cudnn, destroy_descriptor, "cudnnBackendDestroyDescriptor");
    RESOLVE(cudnn, set_attribute, "cudnnBackendSetAttribute");
    RESOLVE(cudnn, get_attribute, "cudnnBackendGetAttribute");
    RESOLVE(cudnn, finalize, "cudnnBackendFinalize");
    RESOLVE(cudnn, execute, "cudnnBackendExecute");
    *(void **)&workspace_query = dlsym(cudnn, "cudnnGetExecutionPlanWorkspaceSize");
    /* PyTorch may have put an older libcudnn.so.9 in front of a newer library of this name. */
    void *graph = workspace_query ? NULL : dlopen("libcudnn_graph.so.9", RTLD_NOW | RTLD_NOLOAD);
    if (graph) *(void **)&workspace_query = dlsym(graph, "cudnnGetExecutionPlanWorkspaceSize");
    RESOLVE(cuda, stream_synchronize, "cuStreamSynchronize");
    RESOLVE(cuda, memset_async, "cuMemsetD8Async");
    return 0;
}

const char *floor_error(int status) {
    if (status == NO_LIBRARY) return "libcudnn.so.9 or libcuda.so.1, or a function in them, is missing";
    if (status == DRIVER_FAILED) return "a driver call failed";
    return error_string ? error_string(status) : "unknown";
}

/* Create a handle on the current device and, on it, the plan that `json_text` describes. */
int floor_create_plan(const char *json_text, int64_t length, void *stream, void **handle,
                      descriptor_t *plan, int64_t *workspace_size) {
    int64_t count = 0;
    TRY(load());
    TRY(create_handle(handle));
    TRY(set_stream(*handle, stream));
    TRY(create_descriptor(EXECUTION_PLAN_DESCRIPTOR, plan));
    TRY(set_attribute(*plan, PLAN_HANDLE, TYPE_HANDLE, 1, handle));
    TRY(set_attribute(*plan, PLAN_JSON, TYPE_CHAR, length, json_text)); /* the final NUL counts */
    TRY(finalize(*plan));
    return get_attribute(*plan, PLAN_WORKSPACE_SIZE, TYPE_INT64, 1, &count, workspace_size);
}

int floor_destroy_plan(descriptor_t plan) { return destroy_descriptor(plan); }

int floor_set_memsets(int count, const uintptr_t *addresses, const size_t *sizes) {
    if (count > MAX_MEMSETS) return DRIVER_FAILED;
    for (int i = 0; i < count; i++) {
        memset_addresses[i] = addresses[i];
        memset_sizes[i] = sizes[i];
    }
    memset_count = count;
    return 0;
}

static int make_pack(descriptor_t *pack, int64_t n, const int64_t *uids, void *const *pointers,
                     void *workspace) {
    TRY(create_descriptor(VARIANT_PACK_DESCRIPTOR, pack));
    TRY(set_attribute(*pack, PACK_UIDS, TYPE_INT64, n, uids));
    TRY(set_attribute(*pack, PACK_POINTERS, TYPE_VOID_PTR, n, pointers));
    TRY(set_attribute(*pack, PACK_WORKSPACE, TYPE_VOID_PTR, 1, &workspace));
    return finalize(*pack);
}

static void write_overrides(const struct overrides *overrides, const int64_t *values) {
    for (int64_t row = 0; row < 2 * overrides->count; row++) {
        int64_t rank = overrides->ranks[row % overrides->count];
        memcpy(overrides->rows[row], values, (size_t)rank * sizeof *values);
        values += rank;
    }
}

static int set_overrides(descriptor_t pack, const struct overrides *overrides) {
    TRY(set_attribute(pack, PACK_OVERRIDE_UIDS, TYPE_INT64, overrides->count, overrides->uids));
    TRY(set_attribute(pack, PACK_OVERRIDE_SHAPES, TYPE_VOID_PTR, 1, overrides->shapes));
    return set_attribute(pack, PACK_OVERRIDE_STRIDES, TYPE_VOID_PTR, 1, overrides->strides);
}

static int run_memsets(void *stream) {
    for (int i = 0; i < memset_count; i++)
        if (memset_async(memset_addresses[i], 0, memset_sizes[i], stream)) return DRIVER_FAILED;
    return 0;
}

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

int floor_set_stream(void *handle, void *stream) { return set_stream(handle, stream); }

/* One launch on any stream; what record_floor.cpp records. */
int floor_enqueue(void *handle, descriptor_t plan, int64_t n, const int64_t *uids,
                  void *const *pointers, void *workspace, void *stream) {
    descriptor_t pack;
    TRY(set_stream(handle, stream));
    TRY(make_pack(&pack, n, uids, pointers, workspace));
    int status = execute(handle, plan, pack);
    TRY(destroy_descriptor(pack));
    return status;
}

/* What a binding without a launch record has to do for each call. */
int floor_pack_and_execute(void *handle, descriptor_t plan, int64_t n, const int64_t *uids,
                           void *const *pointers, void *workspace, int64_t iterations,
                           int64_t sync_every, void *stream, double *ns_out) {
    for (int64_t i = 0; i < iterations; i++) {
        descriptor_t pack;
        double begin = now();
        TRY(run_memsets(stream));
        TRY(make_pack(&pack, n, uids, pointers, workspace));
        TRY(execute(handle, plan, pack));
        TRY(destroy_descriptor(pack));
        ns_out[i] = now() - begin;
        /* Outside the timed part, so that the launch queue never fills. */
        if ((i + 1) % sync_every == 0 && stream_synchronize(stream)) return DRIVER_FAILED;
    }
    return stream_synchronize(stream) ? DRIVER_FAILED : 0;
}

/* The same for a call with overrides: `values` are `sets` times all shapes, then all strides. */
int floor_override_and_execute(void *handle, descriptor_t plan, int64_t n, const int64_t *uids,
                               void *const *pointers, void *workspace, int64_t iterations,
                               int64_t sync_every, void *stream, double *ns_out,
                               const struct overrides *overrides, const int64_t *values,
                               int64_t sets, int64_t set_size) {
    for (int64_t i = 0; i < iterations; i++) {
        descriptor_t pack;
        double begin = now();
        write_overrides(overrides, values + i % sets * set_size);
        TRY(run_memsets(stream));
        TRY(create_descriptor(VARIANT_PACK_DESCRIPTOR, &pack));
        TRY(set_attribute(pack, PACK_UIDS, TYPE_INT64, n, uids));
        TRY(set_attribute(pack, PACK_POINTERS, TYPE_VOID_PTR, n, pointers));
        TRY(set_attribute(pack, PACK_WORKSPACE, TYPE_VOID_PTR, 1, &workspace));
        TRY(set_overrides(pack, overrides));
        TRY(finalize(pack));
        TRY(execute(handle, plan, pack));
        TRY(destroy_descriptor(pack));
        ns_out[i] = now() - begin;
        if ((i + 1) % sync_every == 0 && stream_synchronize(stream)) return DRIVER_FAILED;
    }
    return stream_synchronize(stream) ? DRIVER_FAILED : 0;
}

/* The plan's own bytes of workspace under overrides: a pack of these alone is enough to ask. */
int floor_override_workspace(void *handle, descriptor_t plan, const struct overrides *overrides,
                             const int64_t *values, size_t *size) {
    descriptor_t pack;
    if (!workspace_query) return NO_LIBRARY;
    write_overrides(overrides, values);
    TRY(create_descriptor(VARIANT_PACK_DESCRIPTOR, &pack));
    TRY(set_overrides(pack, overrides));
    TRY(finalize(pack));
    int status = workspace_query(handle, plan, pack, size);
    TRY(destroy_descriptor(pack));
    return status;
}

/* cuDNN's own part of it: one pack, used again and again. */
int floor_execute_only(void *handle, descriptor_t plan, int64_t n, const int64_t *uids,
                       void *const *pointers, void *workspace, int64_t iterations,
                       int64_t sync_every, void *stream, double *ns_out) {
    descriptor_t pack;
    TRY(make_pack(&pack, n, uids, pointers, workspace));
    for (int64_t i = 0; i < iterations; i++) {
        double begin = now();
        TRY(execute(handle, plan, pack));
        ns_out[i] = now() - begin;
        if ((i + 1) % sync_every == 0 && stream_synchronize(stream)) return DRIVER_FAILED;
    }
    TRY(destroy_descriptor(pack));
    return stream_synchronize(stream) ? DRIVER_FAILED : 0;
}
