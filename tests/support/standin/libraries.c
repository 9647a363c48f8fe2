/* Device code of the stand-in for libcuda.so.1: libraries, their kernels, and launches of those.
 *
 * All code is the text CODE, which has one kernel: `scale` computes y[i] = factor * x[i] of floats.
 * Its parameters are a tensor map of x, the address of y with the number of elements, and factor.
 */
#define _GNU_SOURCE
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char CODE[] = "stand-in code: scale";
enum { MAP = 128, MAP_ALIGNMENT = 64, MOST_SHARED = 232448, DYNAMIC_SHARED = 8 };

static const struct parameter scale_parameters[] = {{0, MAP}, {MAP, 16}, {MAP + 16, 4}};
enum { SCALE_COUNT = 3, SCALE_SIZE = MAP + 20 };

struct library {
    struct object object;
};

struct launch_attribute { /* CUlaunchAttribute */
    int id, padding;
    struct attribute value;
};

struct launch_config { /* CUlaunchConfig */
    unsigned grid[3], block[3], shared_bytes;
    CUstream stream;
    const struct launch_attribute *attributes;
    unsigned count;
};

static CUresult scale(const struct kernel_call *call)
{
    uintptr_t x, y;
    uint64_t count;
    float factor;
    memcpy(&x, call->buffer, sizeof x);
    memcpy(&y, call->buffer + MAP, sizeof y);
    memcpy(&count, call->buffer + MAP + 8, sizeof count);
    memcpy(&factor, call->buffer + MAP + 16, sizeof factor);
    REQUIRE(usable(x, count * sizeof(float)), CUDA_ERROR_ILLEGAL_ADDRESS);
    REQUIRE(usable(y, count * sizeof(float)), CUDA_ERROR_ILLEGAL_ADDRESS);
    for (uint64_t i = 0; i < count; i++) {
        ((float *)y)[i] = factor * ((const float *)x)[i];
    }
    return CUDA_SUCCESS;
}

/* Functions of libraries stay for ever, and so are not counted as live. */
static CUresult make(struct function **result, bool is_kernel)
{
    *result = make_function("scale", is_kernel, scale_parameters, SCALE_COUNT, scale, 0);
    REQUIRE(*result != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    add_live(LIVE_FUNCTION, -1);
    return CUDA_SUCCESS;
}

EXPORT CUresult cuLibraryLoadData(struct library **library, const void *code, void *jit_options,
                                  void **jit_values, unsigned jit_count, void *options,
                                  void **values, unsigned count)
{
    ENTER_INITIALIZED(cuLibraryLoadData);
    (void)jit_options, (void)jit_values, (void)jit_count, (void)options, (void)values, (void)count;
    REQUIRE_SUCCESS(refuse_in_capture());
    REQUIRE(library != NULL && code != NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(memcmp(code, CODE, sizeof CODE - 1) == 0, CUDA_ERROR_INVALID_IMAGE);
    *library = calloc(1, sizeof **library);
    REQUIRE(*library != NULL, CUDA_ERROR_OUT_OF_MEMORY);
    (*library)->object.kind = LIBRARY;
    return leave(CALL_cuLibraryLoadData, CUDA_SUCCESS);
}

EXPORT CUresult cuLibraryGetKernel(struct function **kernel, struct library *library,
                                   const char *name)
{
    ENTER_INITIALIZED(cuLibraryGetKernel);
    REQUIRE_SUCCESS(check_object(library, LIBRARY, CUDA_ERROR_INVALID_HANDLE));
    REQUIRE(strcmp(name, "scale") == 0, CUDA_ERROR_NOT_FOUND);
    REQUIRE_SUCCESS(make(kernel, true));
    return leave(CALL_cuLibraryGetKernel, CUDA_SUCCESS);
}

EXPORT CUresult cuKernelGetFunction(struct function **function, struct function *kernel)
{
    ENTER_INITIALIZED(cuKernelGetFunction);
    REQUIRE_SUCCESS(check_object(kernel, FUNCTION, CUDA_ERROR_INVALID_HANDLE));
    REQUIRE(current_context() != NULL, CUDA_ERROR_INVALID_CONTEXT);
    REQUIRE_SUCCESS(make(function, false));
    return leave(CALL_cuKernelGetFunction, CUDA_SUCCESS);
}

EXPORT CUresult cuKernelSetAttribute(int attribute, int value, struct function *kernel,
                                     CUdevice device)
{
    ENTER_INITIALIZED(cuKernelSetAttribute);
    (void)device;
    REQUIRE_SUCCESS(check_object(kernel, FUNCTION, CUDA_ERROR_INVALID_HANDLE));
    REQUIRE(attribute != DYNAMIC_SHARED || value <= MOST_SHARED, CUDA_ERROR_INVALID_VALUE);
    return leave(CALL_cuKernelSetAttribute, CUDA_SUCCESS);
}

EXPORT CUresult cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address,
                                       const uint64_t *dims, const uint64_t *strides,
                                       const unsigned *box, const unsigned *element_strides,
                                       int interleave, int swizzle, int promotion, int fill)
{
    ENTER_INITIALIZED(cuTensorMapEncodeTiled);
    (void)type, (void)strides, (void)element_strides, (void)interleave, (void)promotion, (void)fill;
    REQUIRE((uintptr_t)map % MAP_ALIGNMENT == 0, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(rank >= 1 && rank <= 5 && (uintptr_t)address % 16 == 0, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < rank; i++) {
        REQUIRE(dims[i] > 0 && box[i] > 0 && box[i] <= 256, CUDA_ERROR_INVALID_VALUE);
    }
    memset(map, 0xa0 + swizzle, MAP);
    memcpy(map, &address, sizeof address);
    return leave(CALL_cuTensorMapEncodeTiled, CUDA_SUCCESS);
}

EXPORT CUresult cuLaunchKernelEx(const struct launch_config *config, struct function *function,
                                 void **parameters, void **extra)
{
    ENTER_INITIALIZED(cuLaunchKernelEx);
    unsigned char buffer[SCALE_SIZE];
    unsigned cluster = 0;
    REQUIRE_SUCCESS(check_object(function, FUNCTION, CUDA_ERROR_INVALID_HANDLE));
    REQUIRE(parameters != NULL && extra == NULL, CUDA_ERROR_INVALID_VALUE);
    REQUIRE(config->grid[0] > 0 && config->block[0] > 0, CUDA_ERROR_INVALID_VALUE);
    for (unsigned i = 0; i < config->count; i++) {
        if (config->attributes[i].id == ATTRIBUTE_CLUSTER) {
            memcpy(&cluster, config->attributes[i].value.bytes, sizeof cluster);
        }
    }
    for (size_t i = 0; i < SCALE_COUNT; i++) {
        memcpy(buffer + scale_parameters[i].offset, parameters[i], scale_parameters[i].size);
    }
    REQUIRE_SUCCESS(submit(config->stream, &(struct launch_node){.type = NODE_KERNEL,
                                                                 .after = {-1, -1},
                                                                 .function = function,
                                                                 .grid = config->grid[0],
                                                                 .block = config->block[0],
                                                                 .cluster = cluster,
                                                                 .buffer = buffer}, 1));
    return leave(CALL_cuLaunchKernelEx, CUDA_SUCCESS);
}
