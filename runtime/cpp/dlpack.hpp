// DLPack 1.x, as far as it is used here: layouts from dmlc/dlpack's dlpack.h (1.3), by its names.
// Only fields and functions up to the last one that we need are declared; the rest follows behind.
#pragma once

#include <cstddef>
#include <cstdint>

extern "C" {

struct DLPackVersion {
    uint32_t major, minor;
};

struct DLDevice {
    int32_t device_type;
    int32_t device_id;
};

struct DLDataType {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};

struct DLTensor {
    void* data;
    DLDevice device;
    int32_t ndim;
    DLDataType dtype;
    int64_t* shape;
    int64_t* strides;  // in elements; before 1.2 NULL stood for row-major
    uint64_t byte_offset;
};

struct DLManagedTensor {
    DLTensor dl_tensor;
    void* manager_ctx;
    void (*deleter)(DLManagedTensor*);
};

struct DLManagedTensorVersioned {
    DLPackVersion version;
    void* manager_ctx;
    void (*deleter)(DLManagedTensorVersioned*);
    uint64_t flags;
    DLTensor dl_tensor;
};

struct DLPackExchangeAPIHeader {
    DLPackVersion version;
    DLPackExchangeAPIHeader* prev_api;
};

struct DLPackExchangeAPI {
    DLPackExchangeAPIHeader header;
    int (*managed_tensor_allocator)(
        DLTensor* prototype, DLManagedTensorVersioned** out, void* error_context,
        void (*set_error)(void* error_context, const char* kind, const char* message));
    int (*managed_tensor_from_py_object_no_sync)(void* object, DLManagedTensorVersioned** out);
    int (*managed_tensor_to_py_object_no_sync)(DLManagedTensorVersioned* tensor, void** out);
    int (*dltensor_from_py_object_no_sync)(void* object, DLTensor* out);  // may be NULL
    int (*current_work_stream)(int32_t device_type, int32_t device_id, void** out);
};

}  // extern "C"

static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, shape) == 24);
static_assert(offsetof(DLManagedTensorVersioned, dl_tensor) == 32);
static_assert(offsetof(DLPackExchangeAPI, dltensor_from_py_object_no_sync) == 40);
