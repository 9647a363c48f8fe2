/* What the files of the stand-in for libcuda.so.1 share. */
#ifndef DRIVER_H
#define DRIVER_H

#include "standin.h"

#include <pthread.h>
#include <stdatomic.h>

enum { MAX_CONTEXTS = 64, MAX_LAST = 8 };

enum capture_mode { MODE_GLOBAL, MODE_THREAD_LOCAL, MODE_RELAXED };
enum capture { CAPTURE_NONE, CAPTURE_ACTIVE, CAPTURE_INVALIDATED };

struct stream {
    struct stream *next;      /* of all that were ever made: none is returned to malloc */
    struct stream *next_free; /* the last destroyed is the next created, so addresses come back */
    bool alive;
    struct context *context;
    unsigned flags;
    int priority;
    uint64_t id;
    enum capture capture;
    enum capture_mode mode;
    uint64_t owner; /* the thread that began the capture */
    uint64_t capture_id;
    long nodes;     /* launches in the capture */
    struct graph *graph;         /* what the capture has so far; ours until it ends */
    struct node *last[MAX_LAST]; /* what the next captured launch depends on */
    size_t last_count;
};

struct context {
    bool made;
    int device;
    struct stream *legacy;
};

/* Bookkeeping (bookkeeping.c) */

extern pthread_mutex_t standin_lock; /* contexts, streams, captures, memory and the log */

int enter(enum call call);
void succeed(enum call call);
CUresult leave(enum call call, CUresult status);
void add_live(enum live_kind kind, int change);
void violate(enum violation kind);
__attribute__((format(printf, 1, 2))) void log_call(const char *format, ...);
long execute_delay(void);
void sleep_delay(void);
void reset_bookkeeping(void);

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
        if (!atomic_load(&standin_initialized)) {                                                  \
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

/* Devices and contexts (driver.c) */

extern atomic_bool standin_initialized;

CUcontext current_context(void);
bool is_context(CUcontext context);
int index_of(CUcontext context);

/* Streams and captures (streams.c), memory (memory.c) */

CUresult identify(CUstream argument, CUcontext *context, uint64_t *id);
bool is_capturing(CUstream argument);
void reset_streams(void);
CUresult resolve(CUstream argument, struct stream **stream); /* with the lock held */
/* For a call that a capturing stream does not survive; with the lock held. */
CUresult resolve_idle(CUstream argument, struct stream **stream);
CUresult refuse_in_capture(void);

/* Whether work may be enqueued on the stream now; with the lock held. `captured`: it must only be
 * added to stream->graph. */
CUresult begin_launch(CUstream argument, struct stream **stream, bool *captured);
enum place locate(uintptr_t address, size_t size, CUcontext *context);
bool is_reserved(uintptr_t address);

/* Objects that callers hold. A dead one stays in memory, so that a late use is seen. */

enum object_kind {
    FUNCTION = 0x46554E43,
    GRAPH = 0x47525048,
    NODE = 0x4E4F4445,
    LIBRARY = 0x4C494252,
    EXEC = 0x45584543,
};

struct object {
    enum object_kind kind;
    atomic_bool dead;
};

/* `status` unless the object is one of that kind and alive; a dead one is a violation. */
CUresult check_object(const void *object, enum object_kind kind, CUresult status);

/* Kernels and other work (work.c) */

enum { MAX_ATTRIBUTE = 16, ATTRIBUTE_CLUSTER = 4, ATTRIBUTE_PRIORITY = 8 };
#define PARAM_END ((void *)0)
#define PARAM_POINTER ((void *)1)
#define PARAM_SIZE ((void *)2)

struct kernel_params { /* CUDA_KERNEL_NODE_PARAMS_v2 */
    struct function *function;
    unsigned grid[3], block[3], shared_bytes;
    void **parameters, **extra;
    struct function *kernel; /* a CUkernel, for a null function */
    CUcontext context;
};

struct memset_params { /* CUDA_MEMSET_NODE_PARAMS_v1 */
    CUdeviceptr target;
    size_t pitch;
    unsigned value, element_bytes;
    size_t width, height;
};

enum { MEMORY_HOST = 1, MEMORY_DEVICE = 2, MEMORY_UNIFIED = 4 };

struct memcpy_side {
    size_t x, y, z, level;
    unsigned memory_type;
    void *host;
    CUdeviceptr device;
    void *array, *reserved;
    size_t pitch, height;
};

struct memcpy_params { /* CUDA_MEMCPY3D_v2 */
    struct memcpy_side source, target;
    size_t width, height, depth;
};

struct attribute { /* CUlaunchAttributeValue */
    unsigned char bytes[64];
};

/* What one node does, with everything it needs in memory of its own. */
struct work {
    enum node_type type;
    CUcontext context;
    struct kernel_params kernel; /* its pointers point into `pointers` and `buffer` */
    unsigned char *buffer;       /* all parameters */
    void **pointers;             /* one for each parameter, or the pairs of `extra` */
    struct attribute attributes[MAX_ATTRIBUTE + 1];
    struct memset_params memset;
    struct memcpy_params memcpy;
    struct exec *child;
};

struct function *function_of(const struct kernel_params *params);
CUresult make_kernel_work(const struct kernel_params *params, struct work *work);
CUresult check_memset(const struct memset_params *params);
CUresult check_memcpy(const struct memcpy_params *params);
CUresult copy_work(const struct work *from, struct work *to);
void free_work(struct work *work);
CUresult run_work(const struct work *work, bool replayed);
bool usable(uintptr_t address, size_t size); /* and a violation if not */

struct function *make_function(const char *name, bool is_kernel, const struct parameter *parameters,
                               size_t count, kernel_code *code, int variant);
void kill_function(struct function *function);
CUresult submit(CUstream stream, const struct launch_node *nodes, size_t count);

/* Graphs (graphs.c, execs.c) */

struct node {
    struct object object;
    struct graph *graph;
    struct work work;
};

struct edge {
    struct node *from, *to;
    unsigned char data[8]; /* from_port, to_port, type, reserved */
};

/* Something of the caller's that graphs keep alive; destroyed with its last reference. */
struct user_object {
    atomic_int references;
    void *pointer;
    void (*destroy)(void *);
};

/* References that a graph has, and what is made of it gets. */
enum { MAX_KEPT = 16 };
struct kept {
    struct user_object *objects[MAX_KEPT];
    size_t count;
};
CUresult keep_object(struct kept *kept, struct user_object *object);
void keep_all(struct kept *kept, const struct kept *from);
void release_all(struct kept *kept);

struct graph {
    struct object object;
    struct node **nodes;
    struct edge *edges;
    size_t node_count, edge_count;
    struct kept kept;
};

struct graph *make_graph(void); /* counted as live only once a caller gets it */
void drop_graph(struct graph *graph);
/* Takes the work over. */
CUresult add_node(struct graph *graph, struct work *work, struct node **node);
CUresult add_edge(struct graph *graph, struct node *from, struct node *to, bool programmatic);

CUresult copy_exec(const struct exec *from, struct exec **to);
void drop_exec(struct exec *exec);
CUresult run_exec(const struct exec *exec);

#endif
