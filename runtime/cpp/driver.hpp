// The CUDA driver's functions, as cuda.h names and lays them out: the one table of this project.
//
// Declared here, because neither headers nor libraries of CUDA are needed to build this project.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cudnn_bindgen {

enum : int { kSuccess = 0, kInvalidValue = 1, kCaptureImplicit = 906 };
enum : int { kThreadLocalCapture = 1, kRelaxedCapture = 2 };
enum : int { kNoCapture = 0, kActiveCapture = 1 };
enum : int { kKernelNode = 0, kMemcpyNode = 1, kMemsetNode = 2, kEmptyNode = 5 };
enum : unsigned { kBlockingStream = 0, kNonBlockingStream = 1 };
enum : int { kPinnedMemory = 1, kOnDevice = 1, kReadWrite = 3 };

// CUDA_KERNEL_NODE_PARAMS_v2
struct KernelNodeParams {
    void* function;
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    void** parameters;
    void** extra;
    void* kernel;   // used when function is null
    void* context;  // ignored when function is set
};

// CUmemLocation
struct MemoryLocation {
    int type;
    int device;
};

// CUmemAllocationProp
struct MemoryProperties {
    int type;
    int exported_as;
    MemoryLocation location;
    void* windows;
    unsigned char flags[8];
};

// CUmemAccessDesc
struct MemoryAccess {
    MemoryLocation location;
    int flags;
};

// CUDA_MEMSET_NODE_PARAMS_v1
struct MemsetNodeParams {
    uint64_t target;
    size_t pitch;
    unsigned value;
    unsigned element_bytes;
    size_t width;
    size_t height;
};

// CUDA_MEMCPY3D_v2
struct MemcpyNodeParams {
    struct Side {
        size_t x, y, z, level;
        unsigned memory_type;
        const void* host;
        uint64_t device;
        void* array;
        void* reserved;
        size_t pitch, height;
    };
    Side source, target;
    size_t width, height, depth;
};

// CUgraphEdgeData
struct EdgeData {
    unsigned char bytes[8];
};

// CUlaunchAttributeValue
struct AttributeValue {
    unsigned char bytes[64];
};

enum : int { kCooperative = 2, kClusterDims = 4, kOverlap = 6 };  // CUlaunchAttributeID

// CUlaunchAttribute
struct LaunchAttribute {
    int id;
    int padding;
    AttributeValue value;
};

// CUlaunchConfig
struct LaunchConfig {
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    void* stream;
    const LaunchAttribute* attributes;
    unsigned count;
};

// Keys of KernelNodeParams::extra.
inline void* const kBufferPointer = reinterpret_cast<void*>(1);
inline void* const kBufferSize = reinterpret_cast<void*>(2);

// Filled once a process (library.pyx). A CUresult is an int here, a CUdeviceptr a uint64_t, a handle
// a void*.
struct DriverApi {
    // What every call needs.
    int (*init)(unsigned);
    int (*get_error_name)(int, const char**);
    int (*device_get)(int*, int);
    int (*device_get_attribute)(int*, int, int);
    int (*primary_context_retain)(void**, int);
    int (*context_get_current)(void**);
    int (*context_set_current)(void*);
    int (*context_get_device)(int*);
    int (*stream_get_context)(void*, void**);
    int (*stream_get_flags)(void*, unsigned*);
    int (*get_capture_info)(void*, int*, uint64_t*, void**, void* const**, size_t*);
    int (*create_user_object)(void**, void*, void (*)(void*), unsigned, unsigned);
    int (*release_user_object)(void*, unsigned);
    int (*retain_user_object)(void*, void*, unsigned, unsigned);
    int (*stream_is_capturing)(void*, int*);
    int (*exchange_capture_mode)(int*);
    int (*memory_allocate)(uint64_t*, size_t);
    int (*memory_free)(uint64_t);
    int (*copy_to_device)(uint64_t, const void*, size_t, void*);
    int (*set_bytes)(uint64_t, unsigned char, size_t, void*);

    // What launch records need besides; CUDA 12.4.
    int (*stream_get_priority)(void*, int*);
    int (*stream_create)(void**, unsigned, int);
    int (*stream_destroy)(void*);
    int (*begin_capture)(void*, int);
    int (*end_capture)(void*, void**);
    int (*update_dependencies)(void*, void* const*, const EdgeData*, size_t, unsigned);
    int (*get_nodes)(void*, void**, size_t*);
    int (*get_edges)(void*, void**, void**, EdgeData*, size_t*);
    int (*node_type)(void*, int*);
    int (*kernel_params)(void*, KernelNodeParams*);
    int (*memset_params)(void*, MemsetNodeParams*);
    int (*memcpy_params)(void*, MemcpyNodeParams*);
    int (*function_param_info)(void*, size_t, size_t*, size_t*);
    int (*kernel_param_info)(void*, size_t, size_t*, size_t*);
    int (*get_attribute)(void*, int, AttributeValue*);
    int (*copy_attributes)(void*, void*);
    int (*create_graph)(void**, unsigned);
    int (*destroy_graph)(void*);
    int (*add_kernel)(void**, void*, void* const*, size_t, const KernelNodeParams*);
    int (*add_memset)(void**, void*, void* const*, size_t, const MemsetNodeParams*, void*);
    int (*add_memcpy)(void**, void*, void* const*, size_t, const MemcpyNodeParams*, void*);
    int (*add_empty)(void**, void*, void* const*, size_t);
    int (*add_edges)(void*, void* const*, void* const*, const EdgeData*, size_t);
    int (*instantiate)(void**, void*, unsigned long long);
    int (*upload)(void*, void*);
    int (*launch)(void*, void*);
    int (*destroy_executable)(void*);
    int (*set_kernel)(void*, void*, const KernelNodeParams*);
    int (*set_memset)(void*, void*, const MemsetNodeParams*, void*);
    int (*set_memcpy)(void*, void*, const MemcpyNodeParams*, void*);
    int (*create_memory)(uint64_t*, size_t, const MemoryProperties*, unsigned long long);
    int (*release_memory)(uint64_t);
    int (*reserve)(uint64_t*, size_t, size_t, uint64_t, unsigned long long);
    int (*free_addresses)(uint64_t, size_t);
    int (*map)(uint64_t, size_t, size_t, uint64_t, unsigned long long);
    int (*unmap)(uint64_t, size_t);
    int (*set_access)(uint64_t, size_t, const MemoryAccess*, size_t);
    int (*allocate_host)(void**, size_t);
    int (*free_host)(void*);
    int (*copy_to_host)(void*, uint64_t, size_t, void*);
    int (*synchronize)(void*);

    // What plans of kernels need besides; CUDA 12.0.
    int (*load_library)(void**, const void*, void*, void**, unsigned, void*, void**, unsigned);
    int (*library_kernel)(void**, void*, const char*);
    int (*kernel_function)(void**, void*);
    int (*set_kernel_attribute)(int, int, void*, int);
    int (*launch_kernel)(const LaunchConfig*, void*, void**, void**);
    int (*encode_tensor_map)(void*, int, unsigned, void*, const uint64_t*, const uint64_t*,
                             const unsigned*, const unsigned*, int, int, int, int);

    // What is null where the driver is older.
    int (*stream_get_id)(void*, uint64_t*);           // CUDA 12.0
    int (*function_name)(const char**, void*);        // CUDA 12.3
    int (*kernel_name)(const char**, void*);

    // The first function that records need and the driver lacks, or null: nothing is recorded then.
    const char* missing_for_records;
    // The same for plans of kernels.
    const char* missing_for_kernels;

    // Resolves all; returns the first function that every call needs and the driver lacks, or null.
    const char* resolve(void* library) {
        const char* missing = nullptr;
        auto find = [library](auto& pointer, const char* name, const char*& missing) {
            void* symbol = dlsym(library, name);
            if (!symbol && !missing) missing = name;
            pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(symbol);
        };
        auto need = [&](auto& pointer, const char* name) { find(pointer, name, missing); };
        need(init, "cuInit");
        need(get_error_name, "cuGetErrorName");
        need(device_get, "cuDeviceGet");
        need(device_get_attribute, "cuDeviceGetAttribute");
        need(primary_context_retain, "cuDevicePrimaryCtxRetain");
        need(context_get_current, "cuCtxGetCurrent");
        need(context_set_current, "cuCtxSetCurrent");
        need(context_get_device, "cuCtxGetDevice");
        need(stream_get_context, "cuStreamGetCtx");
        need(stream_get_flags, "cuStreamGetFlags");
        need(get_capture_info, "cuStreamGetCaptureInfo_v2");
        need(create_user_object, "cuUserObjectCreate");
        need(release_user_object, "cuUserObjectRelease");
        need(retain_user_object, "cuGraphRetainUserObject");
        need(stream_is_capturing, "cuStreamIsCapturing");
        need(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
        need(memory_allocate, "cuMemAlloc_v2");
        need(memory_free, "cuMemFree_v2");
        need(copy_to_device, "cuMemcpyHtoDAsync_v2");
        need(set_bytes, "cuMemsetD8Async");
        missing_for_records = nullptr;
        auto record = [&](auto& pointer, const char* name) {
            find(pointer, name, missing_for_records);
        };
        record(stream_get_priority, "cuStreamGetPriority");
        record(stream_create, "cuStreamCreateWithPriority");
        record(stream_destroy, "cuStreamDestroy_v2");
        record(begin_capture, "cuStreamBeginCapture_v2");
        record(end_capture, "cuStreamEndCapture");
        record(update_dependencies, "cuStreamUpdateCaptureDependencies_v2");
        record(get_nodes, "cuGraphGetNodes");
        record(get_edges, "cuGraphGetEdges_v2");
        record(node_type, "cuGraphNodeGetType");
        record(kernel_params, "cuGraphKernelNodeGetParams_v2");
        record(memset_params, "cuGraphMemsetNodeGetParams");
        record(memcpy_params, "cuGraphMemcpyNodeGetParams");
        record(function_param_info, "cuFuncGetParamInfo");
        record(kernel_param_info, "cuKernelGetParamInfo");
        record(get_attribute, "cuGraphKernelNodeGetAttribute");
        record(copy_attributes, "cuGraphKernelNodeCopyAttributes");
        record(create_graph, "cuGraphCreate");
        record(destroy_graph, "cuGraphDestroy");
        record(add_kernel, "cuGraphAddKernelNode_v2");
        record(add_memset, "cuGraphAddMemsetNode");
        record(add_memcpy, "cuGraphAddMemcpyNode");
        record(add_empty, "cuGraphAddEmptyNode");
        record(add_edges, "cuGraphAddDependencies_v2");
        record(instantiate, "cuGraphInstantiateWithFlags");
        record(upload, "cuGraphUpload");
        record(launch, "cuGraphLaunch");
        record(destroy_executable, "cuGraphExecDestroy");
        record(set_kernel, "cuGraphExecKernelNodeSetParams_v2");
        record(set_memset, "cuGraphExecMemsetNodeSetParams");
        record(set_memcpy, "cuGraphExecMemcpyNodeSetParams");
        record(create_memory, "cuMemCreate");
        record(release_memory, "cuMemRelease");
        record(reserve, "cuMemAddressReserve");
        record(free_addresses, "cuMemAddressFree");
        record(map, "cuMemMap");
        record(unmap, "cuMemUnmap");
        record(set_access, "cuMemSetAccess");
        record(allocate_host, "cuMemAllocHost_v2");
        record(free_host, "cuMemFreeHost");
        record(copy_to_host, "cuMemcpyDtoHAsync_v2");
        record(synchronize, "cuStreamSynchronize");
        missing_for_kernels = nullptr;
        auto kernel = [&](auto& pointer, const char* name) {
            find(pointer, name, missing_for_kernels);
        };
        kernel(load_library, "cuLibraryLoadData");
        kernel(library_kernel, "cuLibraryGetKernel");
        kernel(kernel_function, "cuKernelGetFunction");
        kernel(set_kernel_attribute, "cuKernelSetAttribute");
        kernel(launch_kernel, "cuLaunchKernelEx");
        kernel(encode_tensor_map, "cuTensorMapEncodeTiled");
        const char* may_lack = nullptr;
        find(stream_get_id, "cuStreamGetId", may_lack);
        find(function_name, "cuFuncGetName", may_lack);
        find(kernel_name, "cuKernelGetName", may_lack);
        return missing;
    }
};

}  // namespace cudnn_bindgen
