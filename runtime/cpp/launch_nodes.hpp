// What one launch consists of, read from a captured graph and copied: nodes, parameters, edges.
#pragma once

#include <algorithm>
#include <cstring>
#include <string>
#include <tuple>
#include <vector>

#include "driver.hpp"
#include "records.hpp"

namespace cudnn_bindgen {

inline Reason failed(const char* call, int status) {
    return std::string(call) + " failed with CUresult " + std::to_string(status);
}

struct Parameter {
    size_t offset;
    size_t bytes;
    bool operator==(const Parameter& other) const {
        return offset == other.offset && bytes == other.bytes;
    }
};

struct Attribute {
    int id;
    AttributeValue value;
    bool operator==(const Attribute& other) const {
        return id == other.id && !std::memcmp(&value, &other.value, sizeof(value));
    }
};

// One node. `payload` is all that an address may stand in: a kernel's parameter buffer, or the
// whole parameter struct of a memset or memcpy. Everything else must be the same in each launch.
struct LaunchNode {
    int type = kEmptyNode;
    KernelNodeParams kernel{};  // its pointers `parameters` and `extra` are null
    bool packed = false;        // the buffer came through `extra`
    std::vector<Parameter> parameters;
    std::vector<Attribute> attributes;
    std::vector<unsigned char> payload;

    bool same_but_payload(const LaunchNode& other) const {
        return type == other.type && packed == other.packed &&
               !std::memcmp(&kernel, &other.kernel, sizeof(kernel)) &&
               parameters == other.parameters && attributes == other.attributes &&
               payload.size() == other.payload.size();
    }
};

struct LaunchEdge {
    size_t from;
    size_t to;
    EdgeData data;
    bool operator==(const LaunchEdge& other) const {
        return from == other.from && to == other.to &&
               !std::memcmp(&data, &other.data, sizeof(data));
    }
};

struct Launch {
    std::vector<LaunchNode> nodes;
    std::vector<LaunchEdge> edges;
    std::vector<void*> handles;  // the captured graph's own nodes, in the order of `nodes`
};

namespace detail {

inline Reason read_packed(void** extra, LaunchNode& node) {
    // The keys come in any order; cuBLAS gives the size first.
    void* buffer = nullptr;
    size_t size = 0;
    for (; *extra; extra += 2) {
        if (extra[0] == kBufferPointer) {
            buffer = extra[1];
        } else if (extra[0] == kBufferSize) {
            size = *static_cast<size_t*>(extra[1]);
        } else {
            return "a kernel has launch parameters in an unknown form";
        }
    }
    const auto* bytes = static_cast<unsigned char*>(buffer);
    node.packed = true;
    if (buffer) node.payload.assign(bytes, bytes + size);
    return {};
}

inline Reason read_kernel(const DriverApi& driver, void* handle, LaunchNode& node) {
    KernelNodeParams params{};
    int status = driver.kernel_params(handle, &params);
    if (status) return failed("cuGraphKernelNodeGetParams", status);
    node.kernel = params;
    node.kernel.parameters = nullptr;
    node.kernel.extra = nullptr;
    if (params.extra && *params.extra) {
        Reason reason = read_packed(params.extra, node);
        if (!reason.empty()) return reason;
    } else {
        for (size_t index = 0;; ++index) {
            Parameter parameter{};
            status = params.function
                         ? driver.function_param_info(params.function, index, &parameter.offset,
                                                      &parameter.bytes)
                         : driver.kernel_param_info(params.kernel, index, &parameter.offset,
                                                    &parameter.bytes);
            if (status == kInvalidValue) break;  // past the last one
            // With less than all of them a launch would read what is none.
            if (status) return failed("asking for a kernel's parameters", status);
            const size_t end = parameter.offset + parameter.bytes;
            if (node.payload.size() < end) node.payload.resize(end);
            std::memcpy(&node.payload[parameter.offset], params.parameters[index], parameter.bytes);
            node.parameters.push_back(parameter);
        }
    }
    for (int id = 1; id <= 16; ++id) {
        Attribute attribute{id, {}};
        // An id that this driver or a kernel node does not know is refused: nothing to compare.
        if (!driver.get_attribute(handle, id, &attribute.value)) {
            node.attributes.push_back(attribute);
        }
    }
    return {};
}

template <typename Params>
Reason read_struct(int (*get)(void*, Params*), const char* call, void* handle, LaunchNode& node) {
    node.payload.assign(sizeof(Params), 0);
    const int status = get(handle, reinterpret_cast<Params*>(node.payload.data()));
    return status ? failed(call, status) : Reason{};
}

inline Reason read_node(const DriverApi& driver, void* handle, LaunchNode& node) {
    const int status = driver.node_type(handle, &node.type);
    if (status) return failed("cuGraphNodeGetType", status);
    switch (node.type) {
        case kKernelNode:
            return read_kernel(driver, handle, node);
        case kMemsetNode:
            return read_struct(driver.memset_params, "cuGraphMemsetNodeGetParams", handle, node);
        case kMemcpyNode:
            return read_struct(driver.memcpy_params, "cuGraphMemcpyNodeGetParams", handle, node);
        case kEmptyNode:
            return {};
        default:
            // Host functions, events, allocations, child graphs: their effect is not in parameters.
            return "it has a node of type " + std::to_string(node.type);
    }
}

}  // namespace detail

// Reads a captured graph. `graph` must outlive the use of `launch.handles`.
inline Reason read_launch(const DriverApi& driver, void* graph, Launch& launch) {
    size_t count = 0;
    int status = driver.get_nodes(graph, nullptr, &count);
    if (status) return failed("cuGraphGetNodes", status);
    launch.handles.resize(count);
    launch.nodes.resize(count);
    if (count) status = driver.get_nodes(graph, launch.handles.data(), &count);
    if (status) return failed("cuGraphGetNodes", status);
    for (size_t index = 0; index < count; ++index) {
        Reason reason = detail::read_node(driver, launch.handles[index], launch.nodes[index]);
        if (!reason.empty()) return reason;
    }

    size_t edges = 0;
    status = driver.get_edges(graph, nullptr, nullptr, nullptr, &edges);
    if (status) return failed("cuGraphGetEdges", status);
    std::vector<void*> from(edges), to(edges);
    std::vector<EdgeData> data(edges);
    if (edges) status = driver.get_edges(graph, from.data(), to.data(), data.data(), &edges);
    if (status) return failed("cuGraphGetEdges", status);
    auto position = [&](void* handle) {
        size_t index = 0;
        while (index < count && launch.handles[index] != handle) ++index;
        return index;
    };
    for (size_t index = 0; index < edges; ++index) {
        launch.edges.push_back({position(from[index]), position(to[index]), data[index]});
    }
    // In an order that no capture decides: how the driver lists them is not said.
    std::sort(launch.edges.begin(), launch.edges.end(), [](const auto& one, const auto& other) {
        return std::tie(one.from, one.to) < std::tie(other.from, other.to);
    });
    return {};
}

}  // namespace cudnn_bindgen
