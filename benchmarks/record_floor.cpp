// The limit of a launch record: cuGraphLaunch alone, of the same nodes, timed in C++.
//
// host_overhead.py compiles this together with floor.c; the recorder is the runtime's own.
#include <time.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "recorder.hpp"

extern "C" int floor_set_stream(void* handle, void* stream);
extern "C" int floor_enqueue(void* handle, void* plan, int64_t n, const int64_t* uids,
                             void* const* pointers, void* workspace, void* stream);

namespace {

using cudnn_bindgen::DriverApi;
using cudnn_bindgen::LaunchRecord;

struct Work {
    void* handle;
    void* plan;
    int64_t count;
    const int64_t* uids;
    std::vector<void*> pointers;  // scalars are host addresses and stay as they are
    std::vector<int64_t> shifted;
    void* workspace;
};

DriverApi driver;
std::unique_ptr<LaunchRecord> record;
std::string reason;

int launch(void* what, void* const* addresses, void* stream) {
    Work work = *static_cast<Work*>(what);
    for (size_t index = 0; index < work.shifted.size(); ++index) {
        work.pointers[work.shifted[index]] = addresses[index];
    }
    void* workspace = work.workspace ? addresses[work.shifted.size()] : nullptr;
    return floor_enqueue(work.handle, work.plan, work.count, work.uids, work.pointers.data(),
                         workspace, stream);
}

// Bytes that an operand or the workspace may take: more than those of any graph here.
size_t largest(void*) { return size_t{1} << 28; }

double now() {
    timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1e9 + time.tv_nsec;
}

}  // namespace

// Records the plan; `operands` are the positions in `pointers` that hold device addresses. Returns
// null or why it cannot be recorded; `ns_out` is what recording took.
extern "C" const char* record_floor_make(void* handle, void* plan, int64_t count,
                                         const int64_t* uids, void* const* pointers,
                                         int64_t operand_count, const int64_t* operands,
                                         void* workspace, void* context, void* stream,
                                         double* ns_out) {
    driver.resolve(dlopen("libcuda.so.1", RTLD_NOW));
    if (driver.missing_for_records) return "the driver is too old";
    Work work{handle, plan, count, uids, {pointers, pointers + count},
              {operands, operands + operand_count}, workspace};
    std::vector<void*> addresses;
    for (int64_t index = 0; index < operand_count; ++index) {
        addresses.push_back(pointers[operands[index]]);
    }
    std::vector<uint64_t> alignments(addresses.size(), 16);
    if (workspace) {
        addresses.push_back(workspace);
        alignments.push_back(256);
    }
    record.reset();
    const double begin = now();
    reason = cudnn_bindgen::record_launch(
        driver,
        {launch, largest, &work, context, /*device=*/0, stream, addresses.data(),
         alignments.data(), addresses.size()},
        record);
    *ns_out = now() - begin;
    // The stream that captured is gone.
    if (floor_set_stream(handle, stream)) return "cudnnSetStream failed";
    return reason.empty() ? nullptr : reason.c_str();
}

// Times cuGraphLaunch of the record, nothing else; returns the first CUresult that is no success.
extern "C" int record_floor_launch(int64_t iterations, int64_t sync_every, void* stream,
                                   int (*synchronize)(void*), double* ns_out) {
    for (int64_t index = 0; index < iterations; ++index) {
        const double begin = now();
        const int status = driver.launch(record->executable(), stream);
        ns_out[index] = now() - begin;
        if (status) return status;
        if ((index + 1) % sync_every == 0) synchronize(stream);
    }
    return synchronize(stream);
}

// Times the record's own launch with sets of addresses in turn: a binding's floor when addresses
// change. Each set holds the operands in the order given to record_floor_make, then the workspace
// if the plan needs one.
extern "C" int record_floor_patched(int64_t iterations, int64_t sync_every, void* stream,
                                    int (*synchronize)(void*), int64_t set_count, int64_t size,
                                    void* const* addresses, double* ns_out) {
    for (int64_t index = 0; index < iterations; ++index) {
        bool patched = false;
        void* const* set = addresses + index % set_count * size;
        const double begin = now();
        const int status = record->launch(set, size, stream, &patched);
        ns_out[index] = now() - begin;
        if (status) return status;
        if ((index + 1) % sync_every == 0) synchronize(stream);
    }
    return synchronize(stream);
}

// Times cuLaunchKernelEx and cuMemsetD8Async of the nodes in a captured CUDA graph, with the parameters
// that they have there: what a caller does who knows them all. Returns null or why it cannot be done.
extern "C" const char* record_floor_kernels(void* graph, int64_t iterations, int64_t sync_every,
                                            void* stream, int (*synchronize)(void*),
                                            double* ns_out) {
    struct Kernel {
        cudnn_bindgen::MemsetNodeParams memset;  // if it is no kernel
        cudnn_bindgen::LaunchConfig config;
        std::vector<cudnn_bindgen::LaunchAttribute> attributes;
        std::vector<void*> parameters;
        void* function;
    };
    static cudnn_bindgen::Launch launch;
    launch = {};
    driver.resolve(dlopen("libcuda.so.1", RTLD_NOW));
    reason = cudnn_bindgen::read_launch(driver, graph, launch);
    if (!reason.empty()) return reason.c_str();
    std::vector<Kernel> kernels(launch.nodes.size());
    for (size_t index = 0; index < kernels.size(); ++index) {
        cudnn_bindgen::LaunchNode& node = launch.nodes[index];
        Kernel& kernel = kernels[index];
        kernel.memset = {};
        if (node.type == cudnn_bindgen::kMemsetNode) {
            std::memcpy(&kernel.memset, node.payload.data(), sizeof(kernel.memset));
            if (kernel.memset.value == 0 && kernel.memset.height == 1) continue;
        }
        if (node.type != cudnn_bindgen::kKernelNode || node.packed) {
            return "it has other nodes than kernels and memsets to zero";
        }
        for (const auto& attribute : node.attributes) {
            using namespace cudnn_bindgen;
            const bool is_set = std::any_of(attribute.value.bytes, attribute.value.bytes + 12,
                                            [](unsigned char byte) { return byte; });
            for (int id : {kCooperative, kClusterDims, kOverlap}) {
                if (attribute.id == id && is_set) kernel.attributes.push_back({id, 0, attribute.value});
            }
        }
        for (const auto& parameter : node.parameters) {
            kernel.parameters.push_back(&node.payload[parameter.offset]);
        }
        kernel.function = node.kernel.function ? node.kernel.function : node.kernel.kernel;
        std::memcpy(kernel.config.grid, node.kernel.grid, sizeof(kernel.config.grid));
        std::memcpy(kernel.config.block, node.kernel.block, sizeof(kernel.config.block));
        kernel.config.shared_bytes = node.kernel.shared_bytes;
        kernel.config.stream = stream;
        kernel.config.attributes = kernel.attributes.data();
        kernel.config.count = static_cast<unsigned>(kernel.attributes.size());
    }
    for (int64_t index = 0; index < iterations; ++index) {
        int status = 0;
        const double begin = now();
        for (Kernel& kernel : kernels) {
            const cudnn_bindgen::MemsetNodeParams& bytes = kernel.memset;
            status |= bytes.target
                          ? driver.set_bytes(bytes.target, 0, bytes.width * bytes.element_bytes,
                                             stream)
                          : driver.launch_kernel(&kernel.config, kernel.function,
                                                 kernel.parameters.data(), nullptr);
        }
        ns_out[index] = now() - begin;
        if (status) return "launching its nodes failed";
        if ((index + 1) % sync_every == 0) synchronize(stream);
    }
    synchronize(stream);
    return nullptr;
}

// Times a launch with all parameters of a captured CUDA graph's kernels set anew, in one of the ways
// that there are. Returns null or why it cannot be done.
extern "C" const char* record_floor_patch(void* graph, int way, int64_t iterations,
                                          int64_t sync_every, void* stream,
                                          int (*synchronize)(void*), double* ns_out) {
    enum { kLaunchAlone, kSetInExecutable, kUpdateFromGraph, kInstantiate };
    using cudnn_bindgen::KernelNodeParams;
    static cudnn_bindgen::Launch launch;
    launch = {};
    void* library = dlopen("libcuda.so.1", RTLD_NOW);
    driver.resolve(library);
    auto* set = reinterpret_cast<int (*)(void*, const KernelNodeParams*)>(
        dlsym(library, "cuGraphKernelNodeSetParams_v2"));
    auto* update = reinterpret_cast<int (*)(void*, void*, void*)>(
        dlsym(library, "cuGraphExecUpdate_v2"));
    if (!set || !update) return "the driver is too old";
    reason = cudnn_bindgen::read_launch(driver, graph, launch);
    if (!reason.empty()) return reason.c_str();
    std::vector<KernelNodeParams> kernels(launch.nodes.size());
    std::vector<std::vector<void*>> parameters(kernels.size());
    for (size_t index = 0; index < kernels.size(); ++index) {
        cudnn_bindgen::LaunchNode& node = launch.nodes[index];
        if (node.packed) return "a kernel's parameters are packed";
        for (const auto& parameter : node.parameters) {
            parameters[index].push_back(&node.payload[parameter.offset]);
        }
        kernels[index] = node.kernel;
        kernels[index].parameters = parameters[index].data();
    }
    void* executable = nullptr;
    int status = driver.instantiate(&executable, graph, 0);
    struct {  // CUgraphExecUpdateResultInfo
        int result;
        void *node, *from;
    } result{};
    for (int64_t index = 0; index < iterations && !status; ++index) {
        void* old = nullptr;
        const double begin = now();
        for (size_t node = 0; node < kernels.size(); ++node) {
            if (launch.nodes[node].type != cudnn_bindgen::kKernelNode) continue;
            if (way == kSetInExecutable) {
                status |= driver.set_kernel(executable, launch.handles[node], &kernels[node]);
            } else if (way != kLaunchAlone) {
                status |= set(launch.handles[node], &kernels[node]);
            }
        }
        if (way == kUpdateFromGraph) status |= update(executable, graph, &result);
        if (way == kInstantiate) {
            old = executable;
            status |= driver.instantiate(&executable, graph, 0);
        }
        status |= driver.launch(executable, stream);
        ns_out[index] = now() - begin;
        if ((index + 1) % sync_every == 0) synchronize(stream);
        if (old) driver.destroy_executable(old);
    }
    synchronize(stream);
    driver.destroy_executable(executable);
    return status ? "setting, updating or launching failed" : nullptr;
}

extern "C" void record_floor_destroy() { record.reset(); }
