// What a launch consists of, in words: for people who want to see what a record patches.
#pragma once

#include <dlfcn.h>

#include <string>
#include <vector>

#include "launch_policy.hpp"

namespace cudnn_bindgen {

struct NodeDescription {
    std::string kind;      // kernel, memset, memcpy or empty
    std::string function;  // a kernel's name, as the driver knows it
    unsigned grid[3] = {0, 0, 0};
    unsigned block[3] = {0, 0, 0};
    unsigned shared_bytes = 0;
    size_t bytes = 0;  // of parameters
    std::vector<Patch> patches;
};

namespace detail {

inline std::string function_name(const KernelNodeParams& kernel) {
    // Since CUDA 12.3; a driver without them leaves the name empty.
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    const char* call = kernel.function ? "cuFuncGetName" : "cuKernelGetName";
    void* symbol = library ? dlsym(library, call) : nullptr;
    const char* name = nullptr;
    if (symbol) {
        auto get_name = reinterpret_cast<int (*)(const char**, void*)>(symbol);
        get_name(&name, kernel.function ? kernel.function : kernel.kernel);
    }
    return name ? name : "";
}

inline NodeDescription describe_node(const LaunchNode& node) {
    NodeDescription description;
    description.bytes = node.payload.size();
    switch (node.type) {
        case kKernelNode:
            description.kind = "kernel";
            description.function = function_name(node.kernel);
            std::copy(node.kernel.grid, node.kernel.grid + 3, description.grid);
            std::copy(node.kernel.block, node.kernel.block + 3, description.block);
            description.shared_bytes = node.kernel.shared_bytes;
            break;
        case kMemsetNode:
            description.kind = "memset";
            break;
        case kMemcpyNode:
            description.kind = "memcpy";
            break;
        default:
            description.kind = "empty";
    }
    return description;
}

}  // namespace detail

// Learns what a call launches, without making a record; returns why not, or an empty string.
inline Reason describe_launch(const RecordedCall& call, std::vector<NodeDescription>& nodes) {
    const detail::OnceDriver& once = detail::OnceDriver::get();
    if (once.missing()) return std::string("the driver has no ") + once.missing();
    return learn_launch(once.driver(), call.work,
                        [&](const Sample& sample, const std::vector<Patch>& patches) {
                            for (const LaunchNode& node : sample.launch.nodes) {
                                nodes.push_back(detail::describe_node(node));
                            }
                            for (const Patch& patch : patches) {
                                nodes[patch.node].patches.push_back(patch);
                            }
                            return Reason{};
                        });
}

}  // namespace cudnn_bindgen
