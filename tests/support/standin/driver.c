/* A stand-in for libcuda.so.1: device memory is host memory, every stream runs at once.
 *
 * One mutex guards contexts, streams, memory and the log. It is never held while a launch computes.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>

enum { MAX_DEVICES = 8 }; /* the first contexts are the primary ones, by device */

atomic_bool standin_initialized;
static int device_count = 2;
static int sm[MAX_DEVICES] = {900, 900, 900, 900, 900, 900, 900, 900};
static int sm_count[MAX_DEVICES] = {132, 132, 132, 132, 132, 132, 132, 132};
static struct context contexts[MAX_CONTEXTS];
static _Thread_local struct context *current;

struct context *current_context(void) { return current; }

int index_of(struct context *context) { return (int)(context - contexts); }

bool is_context(struct context *context)
{
    bool known = false;
    pthread_mutex_lock(&standin_lock);
    for (int i = 0; i < MAX_CONTEXTS; i++) {
        known = known || (context == &contexts[i] && contexts[i].made);
    }
    pthread_mutex_unlock(&standin_lock);
    return known;
}

static int device_of(struct context *context) { return context->device; }

static int sm_of(struct context *context)
{
    pthread_mutex_lock(&standin_lock);
    int value = sm[context->device];
    pthread_mutex_unlock(&standin_lock);
    return value;
}

static void reset(void)
{
    pthread_mutex_lock(&standin_lock);
    device_count = 2;
    for (int i = 0; i < MAX_DEVICES; i++) {
        sm[i] = 900;
        sm_count[i] = 132;
    }
    reset_streams();
    reset_bookkeeping();
    pthread_mutex_unlock(&standin_lock);
}

EXPORT const struct standin_services *standin_services(void)
{
    static const struct standin_services services = {
        enter, succeed, log_call, add_live, violate, current_context, device_of, sm_of,
        refuse_in_capture, identify, is_capturing, submit, make_function, kill_function, locate,
        usable, is_reserved, execute_delay, reset,
    };
    return &services;
}

/* Control, for the tests */

EXPORT void standin_reset(void) { reset(); }

EXPORT int standin_set_device_count(int count)
{
    if (count < 0 || count > MAX_DEVICES) {
        return -1;
    }
    pthread_mutex_lock(&standin_lock);
    device_count = count;
    pthread_mutex_unlock(&standin_lock);
    return 0;
}

EXPORT int standin_set_device_sm(int device, int major, int minor)
{
    if (device < 0 || device >= MAX_DEVICES) {
        return -1;
    }
    pthread_mutex_lock(&standin_lock);
    sm[device] = major * 100 + minor * 10;
    pthread_mutex_unlock(&standin_lock);
    return 0;
}

EXPORT int standin_set_device_sm_count(int device, int count)
{
    if (device < 0 || device >= MAX_DEVICES) {
        return -1;
    }
    pthread_mutex_lock(&standin_lock);
    sm_count[device] = count;
    pthread_mutex_unlock(&standin_lock);
    return 0;
}

/* A context that is not its device's primary one; it lives as long as the process. */
EXPORT struct context *standin_new_context(int device)
{
    struct context *context = NULL;
    pthread_mutex_lock(&standin_lock);
    for (int i = MAX_DEVICES; device >= 0 && device < device_count && i < MAX_CONTEXTS; i++) {
        if (!contexts[i].made) {
            context = &contexts[i];
            *context = (struct context){.made = true, .device = device};
            break;
        }
    }
    pthread_mutex_unlock(&standin_lock);
    return context;
}

/* The driver API */

static atomic_bool forked; /* from a process that had initialised the driver */

static void after_fork(void)
{
    if (atomic_exchange(&standin_initialized, false)) {
        atomic_store(&forked, true);
    }
}

__attribute__((constructor)) static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, after_fork);
}

static int devices(void)
{
    pthread_mutex_lock(&standin_lock);
    int count = device_count;
    pthread_mutex_unlock(&standin_lock);
    return count;
}

EXPORT CUresult cuInit(unsigned flags)
{
    ENTER(cuInit);
    REQUIRE(flags == 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(!atomic_load(&forked), CUDA_ERROR_NOT_INITIALIZED);
    REQUIRE(devices() > 0, CUDA_ERROR_NO_DEVICE);
    atomic_store(&standin_initialized, true);
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
    /* What an H200 says, by CUdevice_attribute. */
    static const int h200[] = {
        [1] = 1024, [2] = 1024, [3] = 1024, [4] = 64, [5] = 2147483647, [6] = 65535, [7] = 65535,
        [8] = 49152, [10] = 32, [12] = 65536, [13] = 1980000, [34] = 6, [36] = 3201000,
        [37] = 6016, [38] = 62914560, [39] = 2048, [82] = 65536, [95] = 1, [97] = 232448,
        [106] = 32, [111] = 1024,
    };
    int version = sm_of(&(struct context){.device = device});
    pthread_mutex_lock(&standin_lock);
    int count = sm_count[device];
    pthread_mutex_unlock(&standin_lock);
    switch (attribute) {
    case 16: *value = count; break; /* multiprocessors */
    case 35: *value = 0; break; /* TCC */
    case 75: *value = version / 100; break;
    case 76: *value = version % 100 / 10; break;
    default:
        REQUIRE(attribute > 0 && attribute < (int)(sizeof h200 / sizeof *h200) &&
                    h200[attribute] != 0, CUDA_ERROR_INVALID_VALUE);
        *value = h200[attribute];
    }
    return leave(CALL_cuDeviceGetAttribute, CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceGetName(char *name, int size, CUdevice device)
{
    ENTER_INITIALIZED(cuDeviceGetName);
    REQUIRE(name != NULL && size > 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(device >= 0 && device < devices(), CUDA_ERROR_INVALID_DEVICE);
    snprintf(name, (size_t)size, "NVIDIA H200");
    return leave(CALL_cuDeviceGetName, CUDA_SUCCESS);
}

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    ENTER_INITIALIZED(cuDeviceTotalMem);
    REQUIRE(bytes != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(device >= 0 && device < devices(), CUDA_ERROR_INVALID_DEVICE);
    *bytes = 150109880320;
    return leave(CALL_cuDeviceTotalMem, CUDA_SUCCESS);
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *context, CUdevice device)
{
    ENTER_INITIALIZED(cuDevicePrimaryCtxRetain);
    REQUIRE(context != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(device >= 0 && device < devices(), CUDA_ERROR_INVALID_DEVICE);
    pthread_mutex_lock(&standin_lock);
    contexts[device].made = true;
    contexts[device].device = device;
    pthread_mutex_unlock(&standin_lock);
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
    REQUIRE(context == NULL || is_context(context), CUDA_ERROR_INVALID_CONTEXT);
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
    {CUDA_ERROR_LOSSY_QUERY, "CUDA_ERROR_LOSSY_QUERY",
     "attempted introspection would be semantically lossy"},
    {CUDA_ERROR_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS",
     "an illegal memory access was encountered"},
    {CUDA_ERROR_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {CUDA_ERROR_NOT_SUPPORTED, "CUDA_ERROR_NOT_SUPPORTED", "operation not supported"},
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
