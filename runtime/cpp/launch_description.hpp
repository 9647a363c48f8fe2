// What a launch consists of, in words: for people who want to see what a record patches.
#pragma once

#include <string>
#include <vector>

#include "launch_policy.hpp"

namespace cudnn_bindgen {

namespace detail {

inline std::string function_name(const DriverApi& driver, const KernelNodeParams& kernel) {
    const char* name = nullptr;
    auto get_name = kernel.function ? driver.function_name : driver.kernel_name;
    if (get_name) get_name(&name, kernel.function ? kernel.function : kernel.kernel);
    return name ? name : "";
}

inline NodeDescription describe_node(const DriverApi& driver, const LaunchNode& node) {
    NodeDescription description;
    description.bytes = node.payload.size();
    switch (node.type) {
        case kKernelNode:
            description.kind = "kernel";
            description.function = function_name(driver, node.kernel);
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
    const DriverApi& driver = *call.driver;
    if (driver.missing_for_records) return detail::says_missing(driver);
    return learn_launch(driver, call.work,
                        [&](const Sample& sample, const std::vector<Patch>& patches) {
                            for (const LaunchNode& node : sample.launch.nodes) {
                                nodes.push_back(detail::describe_node(driver, node));
                            }
                            for (const Patch& patch : patches) {
                                nodes[patch.node].patches.push_back(patch);
                            }
                            return Reason{};
                        });
}

}  // namespace cudnn_bindgen
