// Branches in the capture of one stream: what its next launch waits for is read and set.
//
// So no branch needs a stream or an event of its own, and none has to be joined again.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "driver.hpp"

namespace cudnn_bindgen {

// Finds the nodes that the next launch on a capturing stream would wait for; returns the CUresult.
inline int find_ends(const DriverApi& driver, void* stream, std::vector<void*>& ends) {
    int state = 0;
    uint64_t capture = 0;
    void* graph = nullptr;
    void* const* nodes = nullptr;
    size_t count = 0;
    const int status = driver.get_capture_info(stream, &state, &capture, &graph, &nodes, &count);
    if (!status) ends.assign(nodes, nodes + count);
    return status;
}

// Lets the next launch on a capturing stream wait for these nodes alone; returns the CUresult.
inline int wait_for_ends(const DriverApi& driver, void* stream, const std::vector<void*>& ends) {
    enum : unsigned { kSetDependencies = 1 };
    std::vector<void*> once;  // in their order: that of handles is another one in each capture
    for (void* node : ends) {
        if (std::find(once.begin(), once.end(), node) == once.end()) once.push_back(node);
    }
    return driver.update_dependencies(stream, once.data(), nullptr, once.size(), kSetDependencies);
}

}  // namespace cudnn_bindgen
