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
    X(cuDevicePrimaryCtxRetain) X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxGetDevice)            \
    X(cuStreamCreate) X(cuStreamDestroy) X(cuStreamGetCtx) X(cuStreamGetId)                        \
    X(cuStreamIsCapturing) X(cuStreamBeginCapture) X(cuStreamEndCapture)                           \
    X(cuThreadExchangeStreamCaptureMode) X(cuMemAlloc) X(cuMemFree) X(cuMemcpyHtoDAsync)           \
    X(cuMemsetD8Async) X(cuStreamSynchronize) X(cuGetErrorName) X(cuGetErrorString)                \
    X(cudnnGetVersion) X(cudnnGetErrorString) X(cudnnGetLastErrorString) X(cudnnCreate)            \
    X(cudnnDestroy) X(cudnnSetStream) X(cudnnGetStream) X(cudnnBackendCreateDescriptor)            \
    X(cudnnBackendDestroyDescriptor) X(cudnnBackendSetAttribute) X(cudnnBackendGetAttribute)       \
    X(cudnnBackendFinalize) X(cudnnBackendExecute)

#define STANDIN_CALL_ENUM(name) CALL_##name,
enum call { STANDIN_CALLS(STANDIN_CALL_ENUM) CALL_COUNT };

enum live_kind { LIVE_HANDLE, LIVE_PLAN, LIVE_PACK, LIVE_MEMORY, LIVE_STREAM, LIVE_COUNT };

/* What a caller must never do. All but "stale stream" count in standin_violations(NULL): cuDNN
 * tolerates an equal address, so only a test that is about it looks at that one. */
enum violation { VIOLATION_SHARED, VIOLATION_DESTROYED, VIOLATION_MEMORY, VIOLATION_STALE_STREAM,
                 VIOLATION_COUNT };

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
    CUDA_ERROR_INVALID_CONTEXT = 201,
    CUDA_ERROR_INVALID_HANDLE = 400,
    CUDA_ERROR_ILLEGAL_STATE = 401,
    CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED = 900,
    CUDA_ERROR_STREAM_CAPTURE_INVALIDATED = 901,
    CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
    CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD = 908,
};

/* Where the bytes [address, address + size) lie. */
enum place { BLOCK_HOST, BLOCK_INSIDE, BLOCK_OUTSIDE, BLOCK_FREED };

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
    CUresult (*launch)(CUstream stream, bool *captured);
    enum place (*locate)(uintptr_t address, size_t size, CUcontext *context);
    long (*execute_delay)(void);                      /* microseconds */
    void (*reset)(void);
};

const struct standin_services *standin_services(void);

#endif
