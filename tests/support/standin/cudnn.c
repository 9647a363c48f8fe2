/* A stand-in for libcudnn.so.9: execution plans whose text says what to compute, on host memory.
 *
 * A destroyed handle, plan or pack stays in memory, marked dead, so that a late use is counted and
 * refused where the real library would crash or, worse, work.
 */
#define _GNU_SOURCE
#include "overrides.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    EXECUTION_PLAN = 5,
    VARIANT_PACK = 16,
    PLAN_HANDLE = 400,
    PLAN_WORKSPACE_SIZE = 402,
    PLAN_JSON = 405,
    PACK_UNIQUE_IDS = 1000,
    PACK_DATA_POINTERS = 1001,
    PACK_WORKSPACE = 1003,
    PACK_OVERRIDE_UIDS = 1010,
    PACK_OVERRIDE_SHAPES = 1011,
    PACK_OVERRIDE_STRIDES = 1012,
    TYPE_HANDLE = 0,
    TYPE_INT64 = 3,
    TYPE_VOID_PTR = 6,
    TYPE_CHAR = 24,
};

enum {
    DEFAULT_VERSION = 91900,
    PACK_OVERRIDES_SINCE = 91800,
    PLAN_OVERRIDES_SINCE = 92100,
    WORKSPACE_QUERY_SINCE = 92300,
    ALIVE = 0x57414E44,
    DEAD = 0x44454144,
    PACK_GRAVES = 4096, /* packs come and go with every call, so only the last dead ones are kept */
};

struct handle {
    struct object object;
    CUcontext context;
    CUstream stream;
    uint64_t stream_id;
};

struct pack {
    struct object object;
    int64_t *uids;
    void **pointers;
    size_t uid_count, pointer_count;
    void *workspace;
    struct overrides overrides;
};

static atomic_size_t version = DEFAULT_VERSION;
static const struct standin_services *_Atomic found_driver;
static _Thread_local char last_error[256];
static pthread_mutex_t graves_lock = PTHREAD_MUTEX_INITIALIZER;
static struct object *graves; /* handles and plans, for ever */
static struct object *pack_graves, **pack_graves_tail = &pack_graves;
static int pack_grave_count;

/* The driver stand-in, or NULL: found at the first call that needs it, as the real library does. */
const struct standin_services *driver(void)
{
    const struct standin_services *services = atomic_load(&found_driver);
    if (services == NULL) {
        void *symbol = dlsym(RTLD_DEFAULT, "standin_services");
        void *library = symbol == NULL ? dlopen("libcuda.so.1", RTLD_NOW) : NULL;
        if (library != NULL) {
            symbol = dlsym(library, "standin_services");
        }
        if (symbol != NULL) {
            const struct standin_services *(*get)(void);
            memcpy(&get, &symbol, sizeof get); /* ISO C has no cast from object to function */
            services = get();
            atomic_store(&found_driver, services);
        }
    }
    return services;
}

__attribute__((format(printf, 2, 3))) static cudnnStatus_t fail(cudnnStatus_t status,
                                                                 const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(last_error, sizeof last_error, format, arguments);
    va_end(arguments);
    return status;
}

static cudnnStatus_t succeed(enum call call)
{
    driver()->succeed(call);
    return CUDNN_STATUS_SUCCESS;
}

#define ENTER(name)                                                                                \
    do {                                                                                           \
        if (driver() == NULL) {                                                                    \
            return fail(CUDNN_STATUS_NOT_INITIALIZED, #name ": no stand-in for libcuda.so.1");     \
        }                                                                                          \
        cudnnStatus_t injected = driver()->enter(CALL_##name);                                     \
        if (injected != 0) {                                                                       \
            return fail(injected, #name ": failure asked for by the test");                        \
        }                                                                                          \
    } while (0)
#define REQUIRE(condition, status, ...)                                                            \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            return fail(status, __VA_ARGS__);                                                      \
        }                                                                                          \
    } while (0)
#define REQUIRE_SUCCESS(call)                                                                      \
    do {                                                                                           \
        cudnnStatus_t status_ = call;                                                              \
        if (status_ != CUDNN_STATUS_SUCCESS) {                                                     \
            return status_;                                                                        \
        }                                                                                          \
    } while (0)

static cudnnStatus_t refuse_in_capture(const char *call)
{
    REQUIRE(driver()->refuse_in_capture() == CUDA_SUCCESS,
            CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER, "%s: a stream is being captured", call);
    return CUDNN_STATUS_SUCCESS;
}

/* Objects */

static cudnnStatus_t check_alive(struct object *object, const char *what)
{
    REQUIRE(object != NULL, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "%s is null", what);
    int magic = atomic_load(&object->magic);
    if (magic == DEAD) {
        driver()->violate(VIOLATION_DESTROYED);
    }
    REQUIRE(magic == ALIVE, CUDNN_STATUS_BAD_PARAM, "%s was destroyed or never created", what);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_kind(struct object *object, int kind, const char *what)
{
    REQUIRE_SUCCESS(check_alive(object, what));
    REQUIRE(object->kind == kind, CUDNN_STATUS_BAD_PARAM, "%s has the wrong type", what);
    return CUDNN_STATUS_SUCCESS;
}

static void *make_object(size_t size, int kind)
{
    struct object *object = calloc(1, size);
    if (object != NULL) {
        object->kind = kind;
        atomic_store(&object->magic, ALIVE);
    }
    return object;
}

static void release(void *memory, size_t size)
{
    if (memory != NULL) {
        memset(memory, 0xDD, size);
        free(memory);
    }
}

/* Marks the object dead. Its contents are poisoned unless a call is still inside: that call checks
 * `magic` after it has raised `users`, we read `users` after we have changed `magic`. */
static void bury(struct object *object, size_t size)
{
    atomic_store(&object->magic, DEAD);
    if (object->kind == EXECUTION_PLAN) {
        kill_kernels((struct plan *)object);
    }
    if (atomic_load(&object->users) > 0) {
        driver()->violate(VIOLATION_DESTROYED);
    } else {
        if (object->kind == VARIANT_PACK) {
            struct pack *pack = (struct pack *)object;
            release(pack->uids, pack->uid_count * sizeof *pack->uids);
            release(pack->pointers, pack->pointer_count * sizeof *pack->pointers);
            free_overrides(&pack->overrides);
        } else if (object->kind == EXECUTION_PLAN) {
            free_kernels((struct plan *)object);
            free(((struct plan *)object)->text);
        }
        memset((char *)object + sizeof *object, 0xDD, size - sizeof *object);
    }
    pthread_mutex_lock(&graves_lock);
    if (object->kind != VARIANT_PACK) {
        object->next = graves;
        graves = object;
    } else {
        object->next = NULL;
        *pack_graves_tail = object;
        pack_graves_tail = &object->next;
        if (++pack_grave_count > PACK_GRAVES) {
            struct object *oldest = pack_graves;
            pack_graves = oldest->next;
            pack_grave_count--;
            free(oldest);
        }
    }
    pthread_mutex_unlock(&graves_lock);
}

/* Making plans and packs */

static cudnnStatus_t finalize_plan(struct plan *plan)
{
    int64_t text_version, text_sm;
    CUcontext context = driver()->current_context();
    REQUIRE(plan->handle != NULL, CUDNN_STATUS_BAD_PARAM, "plan: no handle set");
    REQUIRE(plan->text != NULL, CUDNN_STATUS_BAD_PARAM, "plan: no JSON representation set");
    REQUIRE_SUCCESS(check_kind(&plan->handle->object, 0, "plan: handle"));
    REQUIRE(context != NULL && context == plan->handle->context, CUDNN_STATUS_BAD_PARAM,
            "plan: the current context is not the handle's");

    const char *value = find_value(plan->text, "cudnnVersion");
    REQUIRE(value != NULL && scan_int(value, &text_version) != NULL, CUDNN_STATUS_BAD_PARAM,
            "plan: no cudnnVersion in the text");
    REQUIRE((size_t)text_version == atomic_load(&version),
            CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH,
            "plan: made by cuDNN %jd, this is %zu", (intmax_t)text_version, atomic_load(&version));
    value = find_value(plan->text, "deviceVer");
    REQUIRE(value != NULL && scan_int(value, &text_sm) != NULL, CUDNN_STATUS_BAD_PARAM,
            "plan: no deviceVer in the text");
    REQUIRE(text_sm == driver()->sm_of(context), CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH,
            "plan: made for SM %jd, this device is %d", (intmax_t)text_sm,
            driver()->sm_of(context));
    value = find_value(plan->text, "standin");
    REQUIRE(value != NULL, CUDNN_STATUS_NOT_SUPPORTED, "plan: no \"standin\" in the text");
    REQUIRE(scan_standin(value, plan), CUDNN_STATUS_BAD_PARAM, "plan: cannot read \"standin\"");
    REQUIRE(plan->declared_count == 0 || atomic_load(&version) >= PLAN_OVERRIDES_SINCE,
            CUDNN_STATUS_NOT_SUPPORTED, "plan: override shapes need cuDNN 9.21");
    plan->device = driver()->device_of(context);
    REQUIRE(make_kernels(plan), CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_pack(struct pack *pack)
{
    REQUIRE(pack->uid_count == pack->pointer_count, CUDNN_STATUS_BAD_PARAM,
            "variant pack: %zu uids, but %zu pointers", pack->uid_count, pack->pointer_count);
    for (size_t i = 0; i < pack->uid_count; i++) {
        for (size_t j = 0; j < i; j++) {
            REQUIRE(pack->uids[i] != pack->uids[j], CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
                    "variant pack: uid %jd twice", (intmax_t)pack->uids[i]);
        }
    }
    struct reason why;
    cudnnStatus_t status = check_counts(&pack->overrides, &why);
    REQUIRE(status == CUDNN_STATUS_SUCCESS, status, "%s", why.text);
    return CUDNN_STATUS_SUCCESS;
}

/* Execution */

/* Device memory that is freed, too small, or (for the workspace) of another context. */
static cudnnStatus_t check_memory(const void *address, size_t size, CUcontext owner, int64_t uid)
{
    CUcontext context = NULL;
    enum place where = driver()->locate((uintptr_t)address, size, &context);
    bool wrong = where == BLOCK_FREED || where == BLOCK_OUTSIDE ||
                 (where == BLOCK_INSIDE && owner != NULL && context != owner);
    if (wrong) {
        driver()->violate(VIOLATION_MEMORY);
    }
    REQUIRE(!wrong, CUDNN_STATUS_BAD_PARAM, "%s (uid %jd): freed, too small or foreign memory",
            owner != NULL ? "workspace" : "operand", (intmax_t)uid);
    return CUDNN_STATUS_SUCCESS;
}

/* A captured launch may have any addresses: they are looked at when the graph runs. */
static cudnnStatus_t match_operands(const struct plan *plan, const struct pack *pack,
                                    int64_t count, bool captured, void **pointers)
{
    for (size_t o = 0; o < plan->operand_count; o++) {
        const struct operand *operand = &plan->operands[o];
        intmax_t uid = (intmax_t)operand->uid;
        size_t slot = 0;
        while (slot < pack->uid_count && pack->uids[slot] != operand->uid) {
            slot++;
        }
        REQUIRE(slot < pack->uid_count, CUDNN_STATUS_BAD_PARAM, "uid %jd is not bound", uid);
        void *pointer = pack->pointers[slot];
        REQUIRE(pointer != NULL || operand->role == OTHER, CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
                "uid %jd is null", uid);
        size_t item = operand->role == PART                              ? sizeof(float)
                      : operand->role == INPUT || operand->role == OUTPUT ? sizeof(double)
                                                                          : 1;
        REQUIRE((uintptr_t)pointer % item == 0, CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                "uid %jd is not aligned to %zu bytes", uid, item);
        if (operand->role != SCALAR && !captured) {
            size_t size = item == 1 ? 0 : (size_t)count * item;
            REQUIRE_SUCCESS(check_memory(pointer, size, NULL, operand->uid));
        }
        pointers[o] = pointer;
    }
    /* Both sides are free of duplicates, so equal counts now mean equal sets. */
    REQUIRE(pack->uid_count == plan->operand_count, CUDNN_STATUS_BAD_PARAM,
            "%zu uids bound, but the plan has %zu", pack->uid_count, plan->operand_count);
    return CUDNN_STATUS_SUCCESS;
}

/* What execution and workspace query have in common. */
static cudnnStatus_t prepare(struct handle *handle, struct plan *plan, struct pack *pack,
                             struct extent *extent)
{
    REQUIRE_SUCCESS(check_kind(&handle->object, 0, "handle"));
    REQUIRE_SUCCESS(check_kind(&plan->object, EXECUTION_PLAN, "execution plan"));
    REQUIRE_SUCCESS(check_kind(&pack->object, VARIANT_PACK, "variant pack"));
    REQUIRE(plan->object.finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "plan not finalized");
    REQUIRE(pack->object.finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "pack not finalized");

    CUcontext context = driver()->current_context();
    REQUIRE(context != NULL && context == handle->context, CUDNN_STATUS_BAD_PARAM,
            "the current context is not the handle's");
    REQUIRE(plan->device == driver()->device_of(context), CUDNN_STATUS_BAD_PARAM,
            "the plan belongs to device %d", plan->device);
    /* A pack for a query may hold overrides alone. */
    struct reason why;
    cudnnStatus_t status = check_overrides(plan, &pack->overrides, pack->uids, pack->uid_count,
                                           &why);
    REQUIRE(status == CUDNN_STATUS_SUCCESS, status, "%s", why.text);
    *extent = measure(plan, &pack->overrides);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t execute(struct handle *handle, struct plan *plan, struct pack *pack)
{
    void *pointers[MAX_OPERANDS];
    struct extent extent;
    REQUIRE_SUCCESS(prepare(handle, plan, pack, &extent));
    CUstream stream = handle->stream;
    bool captured = driver()->is_capturing(stream);
    REQUIRE_SUCCESS(match_operands(plan, pack, extent.count, captured, pointers));
    void *workspace = extent.workspace > 0 ? pack->workspace : NULL;
    REQUIRE(workspace != NULL || extent.workspace == 0, CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
            "the plan needs %jd bytes of workspace", (intmax_t)extent.workspace);
    if (workspace != NULL && !captured) {
        REQUIRE_SUCCESS(
            check_memory(workspace, (size_t)extent.workspace, handle->context, -1));
    }

    CUcontext stream_context;
    uint64_t stream_id;
    REQUIRE(driver()->identify(stream, &stream_context, &stream_id) == CUDA_SUCCESS,
            CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER, "the handle's stream was destroyed");
    if ((uintptr_t)stream > 2 && stream_id != handle->stream_id) {
        driver()->violate(VIOLATION_STALE_STREAM);
    }
    struct pieces *pieces = make_pieces(plan, &extent, pointers, workspace);
    REQUIRE(pieces != NULL, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
    long delay = driver()->execute_delay();
    if (delay > 0) {
        nanosleep(&(struct timespec){delay / 1000000, delay % 1000000 * 1000}, NULL);
    }
    CUresult launched = submit_pieces(stream, pieces);
    free_pieces(pieces);
    REQUIRE(launched == CUDA_SUCCESS, CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER,
            "the stream refuses the launch (%d)", launched);
    log_overrides(&pack->overrides);
    /* On memory that is there to be captured with: nothing will be launched of it. */
    bool rehearsed = false;
    for (size_t i = 0; i < pack->pointer_count; i++) {
        rehearsed = rehearsed || driver()->is_reserved((uintptr_t)pack->pointers[i]);
    }
    driver()->log("%s 0x%jx 0x%jx 0x%jx 0x%jx 0x%jx",
                  rehearsed ? "rehearsal" : "cudnnBackendExecute", (uintmax_t)(uintptr_t)handle,
                  (uintmax_t)(uintptr_t)plan, (uintmax_t)(uintptr_t)pack,
                  (uintmax_t)(uintptr_t)stream, (uintmax_t)(uintptr_t)pack->workspace);
    return CUDNN_STATUS_SUCCESS;
}

/* Control, for the tests */

EXPORT void standin_set_version(size_t value) { atomic_store(&version, value); }

EXPORT void standin_reset(void)
{
    atomic_store(&version, DEFAULT_VERSION);
    if (driver() != NULL) {
        driver()->reset();
    }
}

/* The cuDNN API */

EXPORT size_t cudnnGetVersion(void)
{
    if (driver() != NULL) {
        driver()->succeed(CALL_cudnnGetVersion);
    }
    return atomic_load(&version);
}

EXPORT const char *cudnnGetErrorString(cudnnStatus_t status)
{
    if (driver() != NULL) {
        driver()->succeed(CALL_cudnnGetErrorString);
    }
#define STATUS_CASE(name, value) case value: return #name;
    switch (status) {
        STATUSES(STATUS_CASE)
    default: return "CUDNN_STATUS_UNKNOWN";
    }
}

/* Like the real one, hands each message out once. */
EXPORT void cudnnGetLastErrorString(char *message, size_t size)
{
    if (driver() != NULL) {
        driver()->succeed(CALL_cudnnGetLastErrorString);
    }
    if (message != NULL && size > 0) {
        snprintf(message, size, "%s", last_error);
        last_error[0] = '\0';
    }
}

EXPORT cudnnStatus_t cudnnCreate(struct handle **handle)
{
    ENTER(cudnnCreate);
    CUcontext context = driver()->current_context();
    REQUIRE(handle != NULL, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnCreate: null");
    /* The real one would create device 0's primary context, on whatever device the caller meant. */
    REQUIRE(context != NULL, CUDNN_STATUS_NOT_INITIALIZED, "cudnnCreate: no current context");
    REQUIRE_SUCCESS(refuse_in_capture("cudnnCreate"));
    struct handle *made = make_object(sizeof *made, 0);
    REQUIRE(made != NULL, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
    made->context = context;
    *handle = made;
    driver()->add_live(LIVE_HANDLE, 1);
    driver()->log("cudnnCreate 0x%jx", (uintmax_t)(uintptr_t)made);
    return succeed(CALL_cudnnCreate);
}

EXPORT cudnnStatus_t cudnnDestroy(struct handle *handle)
{
    ENTER(cudnnDestroy);
    REQUIRE_SUCCESS(check_kind(&handle->object, 0, "cudnnDestroy: handle"));
    REQUIRE_SUCCESS(refuse_in_capture("cudnnDestroy"));
    bury(&handle->object, sizeof *handle);
    driver()->add_live(LIVE_HANDLE, -1);
    driver()->log("cudnnDestroy 0x%jx", (uintmax_t)(uintptr_t)handle);
    return succeed(CALL_cudnnDestroy);
}

EXPORT cudnnStatus_t cudnnSetStream(struct handle *handle, CUstream stream)
{
    ENTER(cudnnSetStream);
    CUcontext context;
    uint64_t id;
    REQUIRE_SUCCESS(check_kind(&handle->object, 0, "cudnnSetStream: handle"));
    REQUIRE(driver()->identify(stream, &context, &id) == CUDA_SUCCESS, CUDNN_STATUS_BAD_PARAM,
            "cudnnSetStream: not a stream");
    REQUIRE(context == handle->context, CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH,
            "cudnnSetStream: the stream's context is not the handle's");
    if (atomic_fetch_add(&handle->object.users, 1) > 0) {
        driver()->violate(VIOLATION_SHARED);
    }
    handle->stream = stream;
    handle->stream_id = id;
    atomic_fetch_sub(&handle->object.users, 1);
    driver()->log("cudnnSetStream 0x%jx 0x%jx", (uintmax_t)(uintptr_t)handle,
                  (uintmax_t)(uintptr_t)stream);
    return succeed(CALL_cudnnSetStream);
}

EXPORT cudnnStatus_t cudnnGetStream(struct handle *handle, CUstream *stream)
{
    ENTER(cudnnGetStream);
    REQUIRE_SUCCESS(check_kind(&handle->object, 0, "cudnnGetStream: handle"));
    REQUIRE(stream != NULL, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnGetStream: null");
    *stream = handle->stream;
    return succeed(CALL_cudnnGetStream);
}

EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(int type, struct object **descriptor)
{
    ENTER(cudnnBackendCreateDescriptor);
    REQUIRE(descriptor != NULL, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "descriptor is null");
    REQUIRE(type == EXECUTION_PLAN || type == VARIANT_PACK, CUDNN_STATUS_NOT_SUPPORTED,
            "descriptor type %d", type);
    bool is_plan = type == EXECUTION_PLAN;
    if (is_plan) {
        REQUIRE_SUCCESS(refuse_in_capture("cudnnBackendCreateDescriptor"));
    }
    struct object *made = make_object(is_plan ? sizeof(struct plan) : sizeof(struct pack), type);
    REQUIRE(made != NULL, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
    *descriptor = made;
    driver()->add_live(is_plan ? LIVE_PLAN : LIVE_PACK, 1);
    if (is_plan) { /* packs would drown the log */
        driver()->log("cudnnBackendCreateDescriptor 0x%jx", (uintmax_t)(uintptr_t)made);
    }
    return succeed(CALL_cudnnBackendCreateDescriptor);
}

EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(struct object *descriptor)
{
    ENTER(cudnnBackendDestroyDescriptor);
    REQUIRE_SUCCESS(check_alive(descriptor, "cudnnBackendDestroyDescriptor: descriptor"));
    bool is_plan = descriptor->kind == EXECUTION_PLAN;
    REQUIRE(is_plan || descriptor->kind == VARIANT_PACK, CUDNN_STATUS_BAD_PARAM,
            "cudnnBackendDestroyDescriptor: not a descriptor");
    if (is_plan) {
        REQUIRE_SUCCESS(refuse_in_capture("cudnnBackendDestroyDescriptor"));
        driver()->log("cudnnBackendDestroyDescriptor 0x%jx", (uintmax_t)(uintptr_t)descriptor);
    }
    bury(descriptor, is_plan ? sizeof(struct plan) : sizeof(struct pack));
    driver()->add_live(is_plan ? LIVE_PLAN : LIVE_PACK, -1);
    return succeed(CALL_cudnnBackendDestroyDescriptor);
}

static cudnnStatus_t copy_array(void **place, size_t *place_count, const void *items,
                                int64_t count, size_t item)
{
    void *copy = malloc((size_t)count * item + 1);
    REQUIRE(copy != NULL, CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, "no memory");
    if (count > 0) {
        memcpy(copy, items, (size_t)count * item);
    }
    free(*place);
    *place = copy;
    *place_count = (size_t)count;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t set_in_plan(struct plan *plan, int name, int64_t count, const void *items)
{
    const char *text = items;
    size_t length;
    if (name == PLAN_HANDLE) {
        struct handle *handle;
        REQUIRE(count == 1, CUDNN_STATUS_BAD_PARAM, "plan: one handle expected");
        memcpy(&handle, items, sizeof handle);
        REQUIRE_SUCCESS(check_kind(&handle->object, 0, "plan: handle"));
        plan->handle = handle;
        return CUDNN_STATUS_SUCCESS;
    }
    REQUIRE(count > 0 && memchr(text, '\0', (size_t)count) == text + count - 1,
            CUDNN_STATUS_BAD_PARAM, "plan: the count of the text must include its final NUL");
    return copy_array((void **)&plan->text, &length, text, count, 1);
}

static cudnnStatus_t set_in_pack(struct pack *pack, int name, int64_t count, const void *items)
{
    if (name == PACK_UNIQUE_IDS) {
        return copy_array((void **)&pack->uids, &pack->uid_count, items, count, sizeof(int64_t));
    }
    if (name == PACK_DATA_POINTERS) {
        return copy_array((void **)&pack->pointers, &pack->pointer_count, items, count,
                          sizeof(void *));
    }
    if (name == PACK_OVERRIDE_UIDS) {
        REQUIRE(count > 0, CUDNN_STATUS_BAD_PARAM, "variant pack: no override uids");
        return copy_array((void **)&pack->overrides.uids, &pack->overrides.count, items, count,
                          sizeof(int64_t));
    }
    REQUIRE(count == 1, CUDNN_STATUS_BAD_PARAM, "attribute %d has one element", name);
    if (name == PACK_OVERRIDE_SHAPES || name == PACK_OVERRIDE_STRIDES) {
        /* The element's address is the vector's: no pointer to it stands there. */
        struct reason why;
        int kind = name == PACK_OVERRIDE_SHAPES ? SHAPES : STRIDES;
        cudnnStatus_t status = take_lists(&pack->overrides, kind, items, &why);
        REQUIRE(status == CUDNN_STATUS_SUCCESS, status, "%s", why.text);
        return CUDNN_STATUS_SUCCESS;
    }
    memcpy(&pack->workspace, items, sizeof pack->workspace);
    return CUDNN_STATUS_SUCCESS;
}

/* The type that an attribute which may be set on this kind of descriptor has, or -1. */
static int settable_type(int kind, int name)
{
    switch (name) {
    case PLAN_HANDLE: return kind == EXECUTION_PLAN ? TYPE_HANDLE : -1;
    case PLAN_JSON: return kind == EXECUTION_PLAN ? TYPE_CHAR : -1;
    case PACK_UNIQUE_IDS: return kind == VARIANT_PACK ? TYPE_INT64 : -1;
    case PACK_DATA_POINTERS:
    case PACK_WORKSPACE: return kind == VARIANT_PACK ? TYPE_VOID_PTR : -1;
    case PACK_OVERRIDE_UIDS:
    case PACK_OVERRIDE_SHAPES:
    case PACK_OVERRIDE_STRIDES:
        if (kind != VARIANT_PACK || atomic_load(&version) < PACK_OVERRIDES_SINCE) {
            return -1;
        }
        return name == PACK_OVERRIDE_UIDS ? TYPE_INT64 : TYPE_VOID_PTR;
    default: return -1;
    }
}

EXPORT cudnnStatus_t cudnnBackendSetAttribute(struct object *descriptor, int name, int type,
                                              int64_t count, const void *items)
{
    ENTER(cudnnBackendSetAttribute);
    REQUIRE_SUCCESS(check_alive(descriptor, "cudnnBackendSetAttribute: descriptor"));
    REQUIRE(!descriptor->finalized, CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized");
    int expected = settable_type(descriptor->kind, name);
    REQUIRE(expected >= 0, CUDNN_STATUS_BAD_PARAM, "attribute %d cannot be set", name);
    REQUIRE(type == expected, CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
            "attribute %d has type %d, not %d", name, expected, type);
    REQUIRE(count >= 0, CUDNN_STATUS_BAD_PARAM, "attribute %d: negative count", name);
    REQUIRE(items != NULL || count == 0, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no elements");
    REQUIRE_SUCCESS(descriptor->kind == EXECUTION_PLAN
                        ? set_in_plan((struct plan *)descriptor, name, count, items)
                        : set_in_pack((struct pack *)descriptor, name, count, items));
    return succeed(CALL_cudnnBackendSetAttribute);
}

EXPORT cudnnStatus_t cudnnBackendGetAttribute(struct object *descriptor, int name, int type,
                                              int64_t requested, int64_t *count, void *items)
{
    ENTER(cudnnBackendGetAttribute);
    REQUIRE_SUCCESS(check_kind(descriptor, EXECUTION_PLAN, "cudnnBackendGetAttribute: descriptor"));
    REQUIRE(descriptor->finalized, CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "plan not finalized");
    struct plan *plan = (struct plan *)descriptor;
    bool is_text = name == PLAN_JSON;
    REQUIRE(is_text || name == PLAN_WORKSPACE_SIZE, CUDNN_STATUS_BAD_PARAM, "attribute %d", name);
    REQUIRE(type == (is_text ? TYPE_CHAR : TYPE_INT64), CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE,
            "attribute %d: type %d", name, type);
    int64_t available = is_text ? (int64_t)strlen(plan->text) + 1 : 1;
    if (count != NULL) {
        *count = available;
    }
    if (requested > 0) {
        REQUIRE(items != NULL, CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "no room for elements");
        int64_t copied = requested < available ? requested : available;
        memcpy(items, is_text ? (void *)plan->text : (void *)&plan->workspace,
               (size_t)copied * (is_text ? 1 : sizeof(int64_t)));
    }
    return succeed(CALL_cudnnBackendGetAttribute);
}

EXPORT cudnnStatus_t cudnnBackendFinalize(struct object *descriptor)
{
    ENTER(cudnnBackendFinalize);
    REQUIRE_SUCCESS(check_alive(descriptor, "cudnnBackendFinalize: descriptor"));
    REQUIRE(!descriptor->finalized, CUDNN_STATUS_BAD_PARAM, "the descriptor is finalized");
    if (descriptor->kind == EXECUTION_PLAN) {
        REQUIRE_SUCCESS(refuse_in_capture("cudnnBackendFinalize"));
        REQUIRE_SUCCESS(finalize_plan((struct plan *)descriptor));
        driver()->log("cudnnBackendFinalize 0x%jx", (uintmax_t)(uintptr_t)descriptor);
    } else {
        REQUIRE_SUCCESS(finalize_pack((struct pack *)descriptor));
    }
    descriptor->finalized = true;
    return succeed(CALL_cudnnBackendFinalize);
}

static void begin_use(struct handle *handle, struct plan *plan, struct pack *pack)
{
    if (atomic_fetch_add(&handle->object.users, 1) > 0) {
        driver()->violate(VIOLATION_SHARED);
    }
    atomic_fetch_add(&plan->object.users, 1);
    atomic_fetch_add(&pack->object.users, 1);
}

static void end_use(struct handle *handle, struct plan *plan, struct pack *pack)
{
    atomic_fetch_sub(&pack->object.users, 1);
    atomic_fetch_sub(&plan->object.users, 1);
    atomic_fetch_sub(&handle->object.users, 1);
}

EXPORT cudnnStatus_t cudnnBackendExecute(struct handle *handle, struct plan *plan,
                                         struct pack *pack)
{
    ENTER(cudnnBackendExecute);
    REQUIRE(handle != NULL && plan != NULL && pack != NULL, CUDNN_STATUS_BAD_PARAM_NULL_POINTER,
            "cudnnBackendExecute: null");
    begin_use(handle, plan, pack);
    cudnnStatus_t status = execute(handle, plan, pack);
    end_use(handle, plan, pack);
    return status == CUDNN_STATUS_SUCCESS ? succeed(CALL_cudnnBackendExecute) : status;
}

EXPORT cudnnStatus_t cudnnGetExecutionPlanWorkspaceSize(struct handle *handle, struct plan *plan,
                                                        struct pack *pack, size_t *size)
{
    ENTER(cudnnGetExecutionPlanWorkspaceSize);
    if (atomic_load(&version) < WORKSPACE_QUERY_SINCE) {
        /* The real one does not have it then: its caller would have called a null pointer. */
        driver()->violate(VIOLATION_ABSENT);
        return fail(CUDNN_STATUS_NOT_SUPPORTED, "cuDNN %zu has no workspace query",
                    atomic_load(&version));
    }
    REQUIRE(handle != NULL && plan != NULL && pack != NULL && size != NULL,
            CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "cudnnGetExecutionPlanWorkspaceSize: null");
    struct extent extent;
    begin_use(handle, plan, pack);
    cudnnStatus_t status = prepare(handle, plan, pack, &extent);
    end_use(handle, plan, pack);
    if (status != CUDNN_STATUS_SUCCESS) {
        return status;
    }
    *size = (size_t)extent.workspace;
    driver()->log("cudnnGetExecutionPlanWorkspaceSize 0x%jx %zu", (uintmax_t)(uintptr_t)plan, *size);
    return succeed(CALL_cudnnGetExecutionPlanWorkspaceSize);
}
