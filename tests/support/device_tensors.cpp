// PyTorch's exchange API with one change: memory of the host is said to be a CUDA device's.
#include <Python.h>

#include "dlpack.hpp"

namespace {

const DLPackExchangeAPI* torch_api;
DLPackExchangeAPI device_api;
void* stream;
int32_t device;
bool has_strides = true;
PyObject* kind;  // what is made becomes one of these

void say(DLTensor* tensor) {
    if (tensor->device.device_type == 1) tensor->device = {2, device};
}

int borrow(void* object, DLTensor* out) {
    const int failed = torch_api->dltensor_from_py_object_no_sync(object, out);
    if (!failed) say(out);
    if (!failed && !has_strides) out->strides = nullptr;
    return failed;
}

int own(void* object, DLManagedTensorVersioned** out) {
    const int failed = torch_api->managed_tensor_from_py_object_no_sync(object, out);
    if (!failed) say(&(*out)->dl_tensor);
    return failed;
}

int allocate(DLTensor* prototype, DLManagedTensorVersioned** out, void* context,
             void (*set_error)(void*, const char*, const char*)) {
    DLTensor wanted = *prototype;
    wanted.device = {1, 0};
    return torch_api->managed_tensor_allocator(&wanted, out, context, set_error);
}

int give(DLManagedTensorVersioned* tensor, void** out) {
    if (torch_api->managed_tensor_to_py_object_no_sync(tensor, out)) return -1;
    PyObject* const plain = static_cast<PyObject*>(*out);
    *out = PyObject_CallMethod(plain, "as_subclass", "O", kind);
    Py_DECREF(plain);
    return *out ? 0 : -1;
}

int current_stream(int32_t, int32_t, void** out) {
    *out = stream;
    return 0;
}

}  // namespace

extern "C" {

// The returned table lives as long as the process.
const DLPackExchangeAPI* pretend(const DLPackExchangeAPI* api) {
    torch_api = api;
    device_api = *api;
    device_api.dltensor_from_py_object_no_sync = borrow;
    device_api.managed_tensor_from_py_object_no_sync = own;
    device_api.managed_tensor_allocator = allocate;
    device_api.managed_tensor_to_py_object_no_sync = give;
    device_api.current_work_stream = current_stream;
    return &device_api;
}

// A producer may leave this function out.
void set_direct(int is_there) {
    device_api.dltensor_from_py_object_no_sync = is_there ? borrow : nullptr;
}

// Before DLPack 1.2 row-major tensors may have none.
void set_strides(int are_there) { has_strides = are_there; }

void set_stream(void* value) { stream = value; }
void set_kind(PyObject* type) { kind = type; }
void set_device(int32_t value) { device = value; }

}
