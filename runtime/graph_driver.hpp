// The CUDA graph calls that recording needs, as cuda.h names and lays them out (CUDA 12.4, newer).
//
// Declared here, because neither headers nor libraries of CUDA are needed to build this project.
#pragma once

#include <dlfcn.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace cudnn_bindgen {

enum : int { kSuccess = 0, kInvalidValue = 1 };
enum : int { kThreadLocalCapture = 1, kRelaxedCapture = 2 };
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

// Keys of KernelNodeParams::extra.
inline void* const kBufferPointer = reinterpret_cast<void*>(1);
inline void* const kBufferSize = reinterpret_cast<void*>(2);

struct GraphDriver {
    int (*stream_get_priority)(void*, int*);
    int (*stream_create)(void**, unsigned, int);
    int (*stream_destroy)(void*);
    int (*begin_capture)(void*, int);
    int (*end_capture)(void*, void**);
    int (*exchange_capture_mode)(int*);
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
    int (*copy_to_device)(uint64_t, const void*, size_t, void*);
    int (*synchronize)(void*);

    // Resolves all of them; returns the name of the first that the driver lacks, or null.
    const char* resolve(void* library) {
        const char* missing = nullptr;
        auto find = [&](auto& pointer, const char* name) {
            void* symbol = dlsym(library, name);
            if (!symbol && !missing) missing = name;
            pointer = reinterpret_cast<std::decay_t<decltype(pointer)>>(symbol);
        };
        find(stream_get_priority, "cuStreamGetPriority");
        find(stream_create, "cuStreamCreateWithPriority");
        find(stream_destroy, "cuStreamDestroy_v2");
        find(begin_capture, "cuStreamBeginCapture_v2");
        find(end_capture, "cuStreamEndCapture");
        find(exchange_capture_mode, "cuThreadExchangeStreamCaptureMode");
        find(get_nodes, "cuGraphGetNodes");
        find(get_edges, "cuGraphGetEdges_v2");
        find(node_type, "cuGraphNodeGetType");
        find(kernel_params, "cuGraphKernelNodeGetParams_v2");
        find(memset_params, "cuGraphMemsetNodeGetParams");
        find(memcpy_params, "cuGraphMemcpyNodeGetParams");
        find(function_param_info, "cuFuncGetParamInfo");
        find(kernel_param_info, "cuKernelGetParamInfo");
        find(get_attribute, "cuGraphKernelNodeGetAttribute");
        find(copy_attributes, "cuGraphKernelNodeCopyAttributes");
        find(create_graph, "cuGraphCreate");
        find(destroy_graph, "cuGraphDestroy");
        find(add_kernel, "cuGraphAddKernelNode_v2");
        find(add_memset, "cuGraphAddMemsetNode");
        find(add_memcpy, "cuGraphAddMemcpyNode");
        find(add_empty, "cuGraphAddEmptyNode");
        find(add_edges, "cuGraphAddDependencies_v2");
        find(instantiate, "cuGraphInstantiateWithFlags");
        find(upload, "cuGraphUpload");
        find(launch, "cuGraphLaunch");
        find(destroy_executable, "cuGraphExecDestroy");
        find(set_kernel, "cuGraphExecKernelNodeSetParams_v2");
        find(set_memset, "cuGraphExecMemsetNodeSetParams");
        find(set_memcpy, "cuGraphExecMemcpyNodeSetParams");
        find(create_memory, "cuMemCreate");
        find(release_memory, "cuMemRelease");
        find(reserve, "cuMemAddressReserve");
        find(free_addresses, "cuMemAddressFree");
        find(map, "cuMemMap");
        find(unmap, "cuMemUnmap");
        find(set_access, "cuMemSetAccess");
        find(allocate_host, "cuMemAllocHost_v2");
        find(free_host, "cuMemFreeHost");
        find(copy_to_host, "cuMemcpyDtoHAsync_v2");
        find(copy_to_device, "cuMemcpyHtoDAsync_v2");
        find(synchronize, "cuStreamSynchronize");
        return missing;
    }
};

// While alive, this thread may create and destroy things although a capture goes on somewhere.
class RelaxedCapture {
  public:
    explicit RelaxedCapture(const GraphDriver& driver) : driver_(driver) {
        changed_ = driver_.exchange_capture_mode(&mode_) == kSuccess;
    }
    ~RelaxedCapture() {
        if (changed_) driver_.exchange_capture_mode(&mode_);
    }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

  private:
    const GraphDriver& driver_;
    int mode_ = kRelaxedCapture;
    bool changed_;
};

}  // namespace cudnn_bindgen
