/* cuDNN's statuses, as far as the stand-in for libcudnn.so.9 returns them. */
#ifndef STATUS_H
#define STATUS_H

typedef int cudnnStatus_t;

#define STATUSES(X)                                                                                \
    X(CUDNN_STATUS_SUCCESS, 0)                                                                     \
    X(CUDNN_STATUS_NOT_INITIALIZED, 1001)                                                          \
    X(CUDNN_STATUS_SUBLIBRARY_VERSION_MISMATCH, 1002)                                              \
    X(CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH, 1003)                                           \
    X(CUDNN_STATUS_BAD_PARAM, 2000)                                                                \
    X(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, 2002)                                                   \
    X(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER, 2003)                                             \
    X(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, 2004)                                                  \
    X(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, 2007)                                                \
    X(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES, 2009)                                             \
    X(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, 2010)                                                 \
    X(CUDNN_STATUS_NOT_SUPPORTED, 3000)                                                            \
    X(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH, 3007)                                              \
    X(CUDNN_STATUS_NOT_SUPPORTED_INVALID_DYNAMIC_SHAPE, 3014)                                      \
    X(CUDNN_STATUS_INTERNAL_ERROR, 4000)                                                           \
    X(CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED, 4003)                                    \
    X(CUDNN_STATUS_EXECUTION_FAILED, 5000)                                                         \
    X(CUDNN_STATUS_EXECUTION_FAILED_CUDA_DRIVER, 5001)
#define STATUS_ENUM(name, value) name = value,
enum { STATUSES(STATUS_ENUM) };

#endif
