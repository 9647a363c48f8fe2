// A launch to be made again: an executable graph of its own, patched where addresses changed.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "patch_table.hpp"

namespace cudnn_bindgen {

class LaunchRecord {
  public:
    // Builds a fresh graph from a captured launch. The captured one is not instantiated: it holds
    // user objects of the library that launched it, and each launch would pay 1 to 2 us for them.
    static Reason build(const GraphDriver& driver, void* context, const Sample& sample,
                        std::vector<Patch> patches, void* stream,
                        std::unique_ptr<LaunchRecord>& record) {
        std::unique_ptr<LaunchRecord> built(new LaunchRecord(driver, context));
        built->nodes_ = sample.launch.nodes;
        built->patches_ = std::move(patches);
        built->addresses_ = sample.addresses;
        built->index_patches();
        RelaxedCapture relaxed(driver);
        Reason reason = built->make_graph(sample.launch, stream);
        if (reason.empty()) record = std::move(built);
        return reason;
    }

    ~LaunchRecord() {
        RelaxedCapture relaxed(driver_);
        if (executable_) driver_.destroy_executable(executable_);
        if (graph_) driver_.destroy_graph(graph_);
    }
    LaunchRecord(const LaunchRecord&) = delete;
    LaunchRecord& operator=(const LaunchRecord&) = delete;

    // Launches with these addresses; returns the CUresult. Work that is queued or running keeps
    // the values it was given. `patched` tells whether any address differed from the last ones.
    int launch(void* const* addresses, void* stream, bool* patched) {
        bool changed = false;
        for (size_t operand = 0; operand < addresses_.size(); ++operand) {
            const auto address = reinterpret_cast<uint64_t>(addresses[operand]);
            if (address == addresses_[operand]) continue;
            addresses_[operand] = address;
            for (uint32_t index = first_[operand]; index < first_[operand + 1]; ++index) {
                const Patch& patch = patches_[index];
                detail::store_word(nodes_[patch.node], patch.offset, address + patch.addend);
                touched_[patch.node] = true;
                changed = true;
            }
        }
        *patched = changed;
        if (changed) {
            for (size_t index = 0; index < nodes_.size(); ++index) {
                if (!touched_[index]) continue;
                const int status = set_node(index);
                // The node stays touched: the next launch sets it again, whatever its addresses.
                if (status) return forget(status);
                touched_[index] = false;
            }
        }
        return driver_.launch(executable_, stream);
    }

    // The CUgraphExec, for whoever measures what a launch costs at least.
    void* executable() const { return executable_; }
    const std::vector<LaunchNode>& nodes() const { return nodes_; }
    const std::vector<Patch>& patches() const { return patches_; }

  private:
    LaunchRecord(const GraphDriver& driver, void* context) : driver_(driver), context_(context) {}

    void index_patches() {
        // By operand, so that a call visits only the words of addresses that changed.
        std::stable_sort(patches_.begin(), patches_.end(), [](const Patch& a, const Patch& b) {
            return a.operand < b.operand;
        });
        first_.assign(addresses_.size() + 1, 0);
        for (const Patch& patch : patches_) ++first_[patch.operand + 1];
        for (size_t operand = 0; operand < addresses_.size(); ++operand) {
            first_[operand + 1] += first_[operand];
        }
        touched_.assign(nodes_.size(), false);
        for (LaunchNode& node : nodes_) prepare(node);
    }

    // Points kernel parameters into the payload, whose storage stays where it is from now on.
    void prepare(LaunchNode& node) {
        pointers_.emplace_back();
        sizes_.push_back(std::make_unique<size_t>(node.payload.size()));
        std::vector<void*>& pointers = pointers_.back();
        if (node.type != kKernelNode) return;
        if (node.packed) {
            pointers = {kBufferPointer, node.payload.data(), kBufferSize, sizes_.back().get(),
                        nullptr};
            node.kernel.extra = pointers.data();
        } else {
            for (const Parameter& parameter : node.parameters) {
                pointers.push_back(&node.payload[parameter.offset]);
            }
            node.kernel.parameters = pointers.data();
        }
    }

    Reason make_graph(const Launch& launch, void* stream) {
        int status = driver_.create_graph(&graph_, 0);
        if (status) return failed("cuGraphCreate", status);
        handles_.resize(nodes_.size());
        for (size_t index = 0; index < nodes_.size(); ++index) {
            status = add_node(nodes_[index], &handles_[index]);
            if (status) return failed("adding a node", status);
            if (nodes_[index].type != kKernelNode) continue;
            status = driver_.copy_attributes(handles_[index], launch.handles[index]);
            if (status) return failed("cuGraphKernelNodeCopyAttributes", status);
        }
        for (const LaunchEdge& edge : launch.edges) {
            // One at a time keeps the edge's data, such as a programmatic dependency.
            status = driver_.add_edges(graph_, &handles_[edge.from], &handles_[edge.to],
                                       &edge.data, 1);
            if (status) return failed("cuGraphAddDependencies", status);
        }
        status = driver_.instantiate(&executable_, graph_, 0);
        if (status) return failed("cuGraphInstantiate", status);
        status = driver_.upload(executable_, stream);
        return status ? failed("cuGraphUpload", status) : Reason{};
    }

    int add_node(LaunchNode& node, void** handle) {
        void* payload = node.payload.data();
        switch (node.type) {
            case kKernelNode:
                return driver_.add_kernel(handle, graph_, nullptr, 0, &node.kernel);
            case kMemsetNode:
                return driver_.add_memset(handle, graph_, nullptr, 0,
                                          static_cast<MemsetNodeParams*>(payload), context_);
            case kMemcpyNode:
                return driver_.add_memcpy(handle, graph_, nullptr, 0,
                                          static_cast<MemcpyNodeParams*>(payload), context_);
            default:
                return driver_.add_empty(handle, graph_, nullptr, 0);
        }
    }

    int set_node(size_t index) {
        LaunchNode& node = nodes_[index];
        void* payload = node.payload.data();
        switch (node.type) {
            case kKernelNode:
                return driver_.set_kernel(executable_, handles_[index], &node.kernel);
            case kMemsetNode:
                return driver_.set_memset(executable_, handles_[index],
                                          static_cast<MemsetNodeParams*>(payload), context_);
            default:
                return driver_.set_memcpy(executable_, handles_[index],
                                          static_cast<MemcpyNodeParams*>(payload), context_);
        }
    }

    // After a failed patch nothing is known of the executable's addresses: compare with none.
    int forget(int status) {
        for (uint64_t& address : addresses_) address = ~uint64_t{0};
        return status;
    }

    const GraphDriver& driver_;
    void* const context_;
    std::vector<LaunchNode> nodes_;
    std::vector<Patch> patches_;       // sorted by operand
    std::vector<uint32_t> first_;      // of each operand's patches
    std::vector<uint64_t> addresses_;  // what the executable graph has
    std::vector<char> touched_;
    std::vector<std::vector<void*>> pointers_;
    std::vector<std::unique_ptr<size_t>> sizes_;
    std::vector<void*> handles_;
    void* graph_ = nullptr;
    void* executable_ = nullptr;
};

}  // namespace cudnn_bindgen
