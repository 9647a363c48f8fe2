/* What the two stand-in libraries share: constants, the list of calls, and the driver's services.
 *
 * All bookkeeping (current context, captures, log, counters, failures) lives in the driver. The
 * cuDNN stand-in is not linked against it: at its first call it looks for `standin_services`, so
 * that it loads, and fails as the real one does, in a process without a driver.
 */
#ifndef STANDIN_H
#define STANDIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define EXPORT __attribute__((visibility("default")))

/* Names that standin_fail and standin_calls know; a trailing "_v2" is ignored there. */
#define STANDIN_CALLS(X)                                                                           \
    X(cuInit) X(cuDriverGetVersion) X(cuDeviceGetCount) X(cuDeviceGet) X(cuDeviceGetAttribute)     \
    X(cuDeviceGetName) X(cuDeviceTotalMem)                                                         \
    X(cuDevicePrimaryCtxRetain) X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxGetDevice)            \
    X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamGetCtx) X(cuStreamGetId)                        \
    X(cuStreamIsCapturing) X(cuStreamBeginCapture) X(cuStreamEndCapture)                           \
    X(cuStreamUpdateCaptureDependencies)                                                           \
    X(cuThreadExchangeStreamCaptureMode) X(cuMemAlloc) X(cuMemFree) X(cuMemcpyHtoDAsync)           \
    X(cuMemcpyDtoHAsync) X(cuMemAllocHost) X(cuMemFreeHost) X(cuMemCreate) X(cuMemRelease)         \
    X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuMemSetAccess)         \
    X(cuStreamGetFlags) X(cuStreamGetCaptureInfo) X(cuUserObjectCreate) X(cuUserObjectRelease)     \
    X(cuGraphRetainUserObject) X(cuGraphClone) X(cuGraphAddChildGraphNode)                         \
    X(cuMemsetD8Async) X(cuStreamSynchronize) X(cuGetErrorName) X(cuGetErrorString)                \
    X(cuStreamCreateWithPriority) X(cuStreamGetPriority) X(cuFuncGetName) X(cuKernelGetName)       \
    X(cuFuncGetParamInfo) X(cuKernelGetParamInfo) X(cuGraphCreate) X(cuGraphDestroy)               \
    X(cuGraphGetNodes) X(cuGraphGetEdges) X(cuGraphNodeGetType) X(cuGraphKernelNodeGetParams)      \
    X(cuGraphMemsetNodeGetParams) X(cuGraphMemcpyNodeGetParams) X(cuGraphKernelNodeGetAttribute)   \
    X(cuGraphKernelNodeCopyAttributes) X(cuGraphAddKernelNode) X(cuGraphAddMemsetNode)             \
    X(cuGraphAddMemcpyNode) X(cuGraphAddEmptyNode) X(cuGraphAddDependencies)                       \
    X(cuGraphInstantiateWithFlags) X(cuGraphUpload) X(cuGraphLaunch) X(cuGraphExecDestroy)         \
    X(cuGraphExecKernelNodeSetParams) X(cuGraphExecMemsetNodeSetParams)                            \
    X(cuGraphExecMemcpyNodeSetParams)                                                              \
    X(cuLibraryLoadData) X(cuLibraryGetKernel) X(cuKernelGetFunction) X(cuKernelSetAttribute)       \
    X(cuTensorMapEncodeTiled) X(cuLaunchKernelEx)                                                  \
    X(cudnnGetVersion) X(cudnnGetErrorString) X(cudnnGetLastErrorString) X(cudnnCreate)            \
    X(cudnnDestroy) X(cudnnSetStream) X(cudnnGetStream) X(cudnnBackendCreateDescriptor)            \
    X(cudnnBackendDestroyDescriptor) X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute)       \
    X(cudnnBackendFinalize) X(cudnnBackendExecute) X(cudnnGetExecutionPlanWorkspaceSize)

#define STANDIN_CALL_ENUM(name) CALL_##name,
enum call { STANDIN_CALLS(STANDIN_CALL_ENUM) CALL_COUNT };

enum live_kind { LIVE_HANDLE, LIVE_PLAN, LIVE_PACK, LIVE_MEMORY, LIVE_STREAM, LIVE_GRAPH,
                 LIVE_EXEC, LIVE_FUNCTION, LIVE_OBJECT, LIVE_COUNT };

/* What a caller must never do. All but "stale stream" count in standin_violations(NULL): cuDNN
 * tolerates an equal address, so only a test that is about it looks at that one. */
enum violation { VIOLATION_SHARED, VIOLATION_DESTROYED, VIOLATION_MEMORY, VIOLATION_OVERRIDES,
                 VIOLATION_ABSENT, VIOLATION_STALE_STREAM, VIOLATION_COUNT };

typedef int CUresult;
typedef int CUdevice;
typedef uintptr_t CUdeviceptr;
typedef struct context *CUcontext;
typedef struct stream *CUstream;

enum {
    CUDA_SUCCESS = 0,
    CUDA_ERROR_INVALID_VALUE = 1,
    CUDA_ERROR_OUT_OF_MEMORY = 2,
    CUDA_ERROR_NOT_INITIALIZED = 3,
    CUDA_ERROR_NO_DEVICE = 100,
    CUDA_ERROR_INVALID_DEVICE = 101,
    CUDA_ERROR_INVALID_IMAGE = 200,
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_LOSSY_QUERY = 402,
    CUDA_ERROR_NOT_FOUND = 500,
    CUDA_ERROR_ILLEGAL_ADDRESS = 700,
    CUDA_ERROR_LAUNCH_FAILED = 719,
    CUDA_ERROR_NOT_SUPPORTED = 801,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

/* Where the bytes [address, address + size) lie. */
enum place { BLOCK_HOST, BLOCK_INSIDE, BLOCK_OUTSIDE, BLOCK_FREED };

/* Kernels. Device code is C code that sees nothing but the grid and the parameter buffer. */

struct parameter {
    size_t offset, size;
};

struct kernel_call {
    int variant; /* which of the functions that share this code */
    unsigned grid, block;
    const struct parameter *parameters;
    size_t parameter_count;
    const unsigned char *buffer;
    bool replayed; /* by a graph: nobody has checked the addresses yet */
};

typedef CUresult kernel_code(const struct kernel_call *call);

enum node_type {
    NODE_KERNEL, NODE_MEMCPY, NODE_MEMSET, NODE_HOST, NODE_GRAPH, NODE_EMPTY, NODE_WAIT_EVENT,
    NODE_RECORD_EVENT, NODE_ALLOC = 10,
};

/* One piece of a launch; the pieces come in an order in which they can run. */
struct launch_node {
    enum node_type type;
    int after[2];      /* positions of those it depends on; {-1, -1}: it follows the stream */
    bool programmatic; /* the edge from after[0] */
    struct function *function;
    unsigned grid, block, cluster; /* cluster 0: no such attribute */
    bool packed;                   /* parameters are given through `extra` */
    const unsigned char *buffer;
    uintptr_t target; /* of a memset or memcpy */
    unsigned value;
    const void *source;
    size_t size;
    const struct exec *child;
};

struct standin_services {
    int (*enter)(enum call call);                     /* the status to fail with, or 0 */
    void (*succeed)(enum call call);
    void (*log)(const char *format, ...) __attribute__((format(printf, 1, 2)));
    void (*add_live)(enum live_kind kind, int change);
    void (*violate)(enum violation kind);
    CUcontext (*current_context)(void);
    int (*device_of)(CUcontext context);
    int (*sm_of)(CUcontext context);                  /* 900 for 9.0 */
    CUresult (*refuse_in_capture)(void);              /* 900 and broken captures, or 0 */
    CUresult (*identify)(CUstream stream, CUcontext *context, uint64_t *id);
    bool (*is_capturing)(CUstream stream);
    /* Runs the pieces now, or adds them to the graph that the stream captures. */
    CUresult (*submit)(CUstream stream, const struct launch_node *nodes, size_t count);
    struct function *(*make_function)(const char *name, bool is_kernel,
                                      const struct parameter *parameters, size_t count,
                                      kernel_code *code, int variant);
    void (*kill_function)(struct function *function);
    enum place (*locate)(uintptr_t address, size_t size, CUcontext *context);
    bool (*usable)(uintptr_t address, size_t size); /* mapped, not freed: if not, a violation */
    bool (*is_reserved)(uintptr_t address); /* by cuMemAddressReserve */
    long (*execute_delay)(void);                      /* microseconds */
    void (*reset)(void);
};

const struct standin_services *standin_services(void);

#endif
