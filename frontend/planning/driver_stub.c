/* A libcuda.so.1 and libcudart.so for processes that plan without a GPU, and for nothing else.
 *
 * NVIDIA's libraries ask the driver for a device before they plan for the properties that they are
 * given. This one describes the device of those properties, and runs nothing: loading a kernel gives
 * a handle to nothing, launching it succeeds. planner.py preloads it, so that whoever asks the
 * dynamic linker for libcuda.so.1, the name of this library, gets it in place of a driver.
 *
 * Whatever else is asked for through cuGetProcAddress is a function that prints its own name when it
 * is called, and fails. What is looked up by dlsym and not found, cuDNN prints itself; what a library
 * is linked with and does not find, the dynamic linker prints.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, NO_DEVICE = 100, NOT_FOUND = 500, NOT_SUPPORTED = 801 };
enum { SM_COUNT = 16, SM_MAJOR = 75, SM_MINOR = 76, ATTRIBUTES = 256 }; /* CUdevice_attribute */

static struct {
    int count, version, attributes[ATTRIBUTES];
    size_t memory;
    char name[256];
} device;

/* Nothing reads or writes what these are the addresses of. */
static char context, library, kernel;

/* What trace.py is told while it writes down what an engine of the frontend's own launches: a name,
 * and the arguments of the call as pointers. NULL where nothing is traced. */
typedef long Hook(const char *call, const void *const *arguments);
static Hook *hook;

void cudnn_bindgen_trace(Hook *told) { hook = told; }

#define TELL(call, ...) (hook ? hook(call, (const void *[]){__VA_ARGS__}) : 0)

/* Called by planner.py: what the functions below say from now on. */
void cudnn_bindgen_describe(const int *attributes, size_t memory, int version, const char *name) {
    memcpy(device.attributes, attributes, sizeof device.attributes);
    device.memory = memory;
    device.version = version;
    strncpy(device.name, name, sizeof device.name - 1);
    device.count = 1;
}

#define GIVES(function, type, value) \
    int function(type *result) { *result = value; return SUCCESS; }
#define DOES_NOTHING(function) \
    int function(void) { return SUCCESS; }
/* Does nothing either, but whoever traces must know. */
#define IS_TOLD(function) \
    int function(void) { return TELL(#function, NULL), SUCCESS; }

DOES_NOTHING(cuInit)
GIVES(cuDriverGetVersion, int, device.version)
GIVES(cuDeviceGetCount, int, device.count)
GIVES(cuCtxGetCurrent, void *, &context)
GIVES(cuCtxPopCurrent, void *, &context)
GIVES(cuCtxPopCurrent_v2, void *, &context)
DOES_NOTHING(cuCtxPushCurrent)
DOES_NOTHING(cuCtxPushCurrent_v2)
DOES_NOTHING(cuCtxSetCurrent)
GIVES(cuCtxGetDevice, int, 0)
GIVES(cuCtxGetLimit, size_t, 0)
GIVES(cuDevicePrimaryCtxRetain, void *, &context)
DOES_NOTHING(cuDevicePrimaryCtxRelease)
DOES_NOTHING(cuDevicePrimaryCtxRelease_v2)
GIVES(cuLibraryLoadData, void *, &library)
GIVES(cuLibraryLoadFromFile, void *, &library)
DOES_NOTHING(cuLibraryUnload)
GIVES(cuLibraryGetKernel, void *, &kernel)
GIVES(cuModuleGetLoadingMode, int, 1) /* CU_MODULE_EAGER_LOADING */
GIVES(cuModuleLoadData, void *, &library)
DOES_NOTHING(cuModuleUnload)
GIVES(cuModuleGetFunction, void *, &kernel)
GIVES(cuKernelGetFunction, void *, &kernel)
GIVES(cuKernelGetAttribute, int, 0)
DOES_NOTHING(cuKernelSetAttribute)
GIVES(cuOccupancyMaxPotentialClusterSize, int, 1)
IS_TOLD(cuLaunchKernel)
IS_TOLD(cuLaunchKernelEx)
IS_TOLD(cuLaunchCooperativeKernel)
DOES_NOTHING(cuTensorMapEncodeIm2col)
DOES_NOTHING(cuTensorMapEncodeTiled)
DOES_NOTHING(cuLinkAddData)
DOES_NOTHING(cuLinkComplete)
DOES_NOTHING(cuLinkDestroy)

int cuLinkCreate(unsigned count, void *options, void *values, void **state) {
    *state = &library;
    return SUCCESS;
}

int cuStreamGetCtx(void *stream, void **result) {
    *result = &context;
    return SUCCESS;
}

int cuDeviceGet(int *result, int ordinal) {
    *result = 0;
    return ordinal < device.count ? SUCCESS : NO_DEVICE;
}

int cuDeviceGetAttribute(int *value, int attribute, int ordinal) {
    if (attribute < 0 || attribute >= ATTRIBUTES) return INVALID_VALUE;
    *value = device.attributes[attribute];
    return SUCCESS;
}

int cuDeviceGetName(char *name, int length, int ordinal) {
    snprintf(name, length, "%s", device.name);
    return SUCCESS;
}

int cuDeviceTotalMem(size_t *bytes, int ordinal) {
    *bytes = device.memory;
    return SUCCESS;
}

int cuDeviceTotalMem_v2(size_t *bytes, int ordinal) { return cuDeviceTotalMem(bytes, ordinal); }

int cuDevicePrimaryCtxGetState(int ordinal, unsigned *flags, int *is_active) {
    *flags = *is_active = 0;
    return SUCCESS;
}

int cuGetErrorName(int error, const char **text) {
    *text = error == NOT_SUPPORTED ? "CUDA_ERROR_NOT_SUPPORTED" : "CUDA_ERROR";
    return SUCCESS;
}

int cuGetErrorString(int error, const char **text) {
    *text = "there is no driver here, only cudnn-bindgen's stub of one";
    return SUCCESS;
}

/* Functions that say their names: one for each of the first 1,024 that this file does not have. */
enum { MOST = 1024 };
static char missing_names[MOST][64];
static int missing_count;

static int say_missing(int index) {
    fprintf(stderr, "cudnn-bindgen's stub of the CUDA driver has no %s\n", missing_names[index]);
    return NOT_SUPPORTED;
}

#define ONES(M, high) \
    M(high##0) M(high##1) M(high##2) M(high##3) M(high##4) M(high##5) M(high##6) M(high##7) \
    M(high##8) M(high##9) M(high##a) M(high##b) M(high##c) M(high##d) M(high##e) M(high##f)
#define SIXTEENS(M, high) \
    ONES(M, high##0) ONES(M, high##1) ONES(M, high##2) ONES(M, high##3) ONES(M, high##4) \
    ONES(M, high##5) ONES(M, high##6) ONES(M, high##7) ONES(M, high##8) ONES(M, high##9) \
    ONES(M, high##a) ONES(M, high##b) ONES(M, high##c) ONES(M, high##d) ONES(M, high##e) \
    ONES(M, high##f)
#define ALL(M) SIXTEENS(M, 0x0) SIXTEENS(M, 0x1) SIXTEENS(M, 0x2) SIXTEENS(M, 0x3)

#define DEFINE(number) \
    static int missing_##number(void) { return say_missing(number); }
#define LIST(number) missing_##number,
ALL(DEFINE)
static int (*const missing[MOST])(void) = {ALL(LIST)};

int cuGetProcAddress_v2(
    const char *name, void **function, int version, unsigned long long flags, int *status) {
    int index;
    *function = dlsym(RTLD_DEFAULT, name);
    if (!*function) {
        for (index = 0; index < missing_count; index++)
            if (!strcmp(missing_names[index], name)) break;
        if (index == MOST) return NOT_FOUND;
        if (index == missing_count) snprintf(missing_names[missing_count++], 64, "%s", name);
        *function = (void *)missing[index];
    }
    if (status) *status = 0; /* CU_GET_PROC_ADDRESS_SUCCESS */
    return SUCCESS;
}

int cuGetProcAddress(const char *name, void **function, int version, unsigned long long flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

static int no_export(void) { return NOT_SUPPORTED; }

/* What NVIDIA's runtime asks for beside functions: tables without entries. */
int cuGetExportTable(const void **table, const void *uuid) {
    static void *entries[64];
    entries[0] = (void *)(2 * sizeof(void *)); /* bytes of a table that has only this */
    for (int i = 1; i < 64; i++) entries[i] = (void *)no_export;
    *table = entries;
    return SUCCESS;
}

/* The runtime, which older frontends ask for the current device. */
DOES_NOTHING(cudaSetDevice)
DOES_NOTHING(cudaGetLastError)
DOES_NOTHING(cudaPeekAtLastError)
DOES_NOTHING(cudaFree)
IS_TOLD(cudaMemcpy)
IS_TOLD(cudaMemcpyAsync)
IS_TOLD(cudaMemsetAsync)
DOES_NOTHING(cudaStreamSynchronize)
DOES_NOTHING(cudaDeviceSynchronize)
GIVES(cudaGetDevice, int, 0)
GIVES(cudaGetDeviceCount, int, device.count)
GIVES(cudaDriverGetVersion, int, device.version)
GIVES(cudaRuntimeGetVersion, int, device.version)

int cudaMalloc(void **result) {
    *result = &context;
    return TELL("cudaMalloc", NULL), SUCCESS;
}

int cudaStreamIsCapturing(void *stream, int *status) {
    *status = 0;
    return SUCCESS;
}

int cudaDeviceGetAttribute(int *value, int attribute, int ordinal) {
    return cuDeviceGetAttribute(value, attribute, ordinal);
}

/* Where cudaDeviceProp of CUDA 12 and 13 has major, minor and multiProcessorCount. */
int cudaGetDeviceProperties(char *properties, int ordinal) {
    *(int *)(properties + 360) = device.attributes[SM_MAJOR];
    *(int *)(properties + 364) = device.attributes[SM_MINOR];
    *(int *)(properties + 384) = *(int *)(properties + 388) = device.attributes[SM_COUNT];
    return SUCCESS;
}

int cudaGetDeviceProperties_v2(char *properties, int ordinal) {
    return cudaGetDeviceProperties(properties, ordinal);
}

const char *cudaGetErrorName(int error) { return "cudaErrorStub"; }
const char *cudaGetErrorString(int error) {
    return "there is no CUDA here, only cudnn-bindgen's stub of it";
}

/* What kernels of CuTe DSL call: NVIDIA's compiler leaves these names to the library that such an
 * object is linked with. Here an object finds this library's, which load and launch nothing. */
int _cudaGetDevice(int *result) { return *result = 0, SUCCESS; }

int _cudaDeviceGetAttribute(int *value, int attribute, int ordinal) {
    return cuDeviceGetAttribute(value, attribute, ordinal);
}

int _cuKernelGetAttribute(int *value, int attribute, void *of, int ordinal) {
    return *value = 0, SUCCESS;
}

DOES_NOTHING(_cudaFuncSetAttribute)
DOES_NOTHING(_cudaKernelSetAttributeForDevice)

int _cudaLibraryLoadData(void **result, const void *code) {
    *result = (void *)TELL("load", code);
    return SUCCESS;
}

int _cudaLibraryGetKernel(void **result, void *of, const char *name) {
    *result = (void *)TELL("kernel", of, name);
    return SUCCESS;
}

int _cudaLaunchKernelEx(const void *config, void *what, void **parameters) {
    return TELL("launch", config, what, parameters);
}

int _cuTensorMapEncodeTiled(
    void *map, long type, long rank, void *address, const void *dims, const void *strides,
    const void *box, const void *element_strides, long interleave, long swizzle, long promotion,
    long fill) {
    return TELL(
        "tensor map", map, (void *)type, (void *)rank, address, dims, strides, box,
        element_strides, (void *)interleave, (void *)swizzle, (void *)promotion, (void *)fill);
}

/* Called before each launch with the place of the object's library, a function that loads it and one
 * that looks up its kernels. */
int cuda_dialect_init_library_once(void **library, int (*load)(void **), int (*look_up)(void **)) {
    int status;
    if (*library) return SUCCESS;
    status = load(library);
    return status ? status : look_up(library);
}

DOES_NOTHING(cuda_dialect_unload_library_once)
void cuda_dialect_assert_success(int status) { (void)status; }
int CuteDSLRT_TVMFFISetRaisedCudaError(int status) { return status ? -1 : 0; }
