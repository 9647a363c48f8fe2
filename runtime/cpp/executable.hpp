// One executable graph of a record, and the addresses that it has.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "capture.hpp"
#include "patch_table.hpp"

namespace cudnn_bindgen {

// A record's patches by operand, so that a call visits only the words of addresses that changed.
class PatchIndex {
  public:
    PatchIndex(std::vector<Patch> patches, size_t operands) : patches_(std::move(patches)) {
        std::stable_sort(patches_.begin(), patches_.end(), [](const Patch& a, const Patch& b) {
            return a.operand < b.operand;
        });
        first_.assign(operands + 1, 0);
        for (const Patch& patch : patches_) ++first_[patch.operand + 1];
        for (size_t operand = 0; operand < operands; ++operand) {
            first_[operand + 1] += first_[operand];
        }
    }
    const Patch* begin(size_t operand) const { return patches_.data() + first_[operand]; }
    const Patch* end(size_t operand) const { return patches_.data() + first_[operand + 1]; }

  private:
    std::vector<Patch> patches_;
    std::vector<uint32_t> first_;
};

class Executable {
  public:
    // `addresses` are those in the nodes' payloads.
    Executable(const DriverApi& driver, void* context, std::vector<LaunchNode> nodes,
               std::vector<uint64_t> addresses)
        : driver_(driver),
          context_(context),
          nodes_(std::move(nodes)),
          addresses_(std::move(addresses)),
          touched_(nodes_.size(), false) {
        for (LaunchNode& node : nodes_) point_into_payload(node);
    }
    ~Executable() {
        RelaxedCapture relaxed(driver_);
        if (executable_) driver_.destroy_executable(executable_);
    }
    Executable(const Executable&) = delete;
    Executable& operator=(const Executable&) = delete;

    // A second one, with the same nodes and addresses; to be instantiated.
    std::unique_ptr<Executable> copy() const {
        return std::make_unique<Executable>(driver_, context_, nodes_, addresses_);
    }

    // Adds node `index` to a graph.
    int add_to(void* graph, size_t index, void** handle) {
        LaunchNode& node = nodes_[index];
        void* payload = node.payload.data();
        switch (node.type) {
            case kKernelNode:
                return driver_.add_kernel(handle, graph, nullptr, 0, &node.kernel);
            case kMemsetNode:
                return driver_.add_memset(handle, graph, nullptr, 0,
                                          static_cast<MemsetNodeParams*>(payload), context_);
            case kMemcpyNode:
                return driver_.add_memcpy(handle, graph, nullptr, 0,
                                          static_cast<MemcpyNodeParams*>(payload), context_);
            default:
                return driver_.add_empty(handle, graph, nullptr, 0);
        }
    }

    // Makes the executable graph. Its parameters are the graph's, whatever `addresses` this has:
    // they are set by the next patch.
    Reason instantiate(void* graph, void* stream) {
        RelaxedCapture relaxed(driver_);
        int status = driver_.instantiate(&executable_, graph, 0);
        if (status) return failed("cuGraphInstantiate", status);
        status = driver_.upload(executable_, stream);
        return status ? failed("cuGraphUpload", status) : Reason{};
    }

    bool has(void* const* addresses) const {
        for (size_t operand = 0; operand < addresses_.size(); ++operand) {
            if (reinterpret_cast<uint64_t>(addresses[operand]) != addresses_[operand]) return false;
        }
        return true;
    }

    // Gives the executable graph other addresses; queued and running launches keep theirs.
    int patch(const PatchIndex& patches, void* const* handles, void* const* addresses) {
        for (size_t operand = 0; operand < addresses_.size(); ++operand) {
            const auto address = reinterpret_cast<uint64_t>(addresses[operand]);
            if (address == addresses_[operand]) continue;
            addresses_[operand] = address;
            for (const Patch* patch = patches.begin(operand); patch != patches.end(operand);
                 ++patch) {
                detail::store_word(nodes_[patch->node], patch->offset, address + patch->addend);
                touched_[patch->node] = true;
            }
        }
        for (size_t index = 0; index < nodes_.size(); ++index) {
            if (!touched_[index]) continue;
            const int status = set_node(index, handles[index]);
            if (status) return status;  // whoever owns this drops it then
            touched_[index] = false;
        }
        return kSuccess;
    }

    // The CUgraphExec.
    void* get() const { return executable_; }

  private:
    // The payload's storage stays where it is from now on.
    void point_into_payload(LaunchNode& node) {
        pointers_.emplace_back();
        sizes_.push_back(std::make_unique<size_t>(node.payload.size()));
        if (node.type != kKernelNode) return;
        std::vector<void*>& pointers = pointers_.back();
        node.kernel.parameters = node.kernel.extra = nullptr;
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

    int set_node(size_t index, void* handle) {
        LaunchNode& node = nodes_[index];
        void* payload = node.payload.data();
        switch (node.type) {
            case kKernelNode:
                return driver_.set_kernel(executable_, handle, &node.kernel);
            case kMemsetNode:
                return driver_.set_memset(executable_, handle,
                                          static_cast<MemsetNodeParams*>(payload), context_);
            default:
                return driver_.set_memcpy(executable_, handle,
                                          static_cast<MemcpyNodeParams*>(payload), context_);
        }
    }

    const DriverApi& driver_;
    void* const context_;
    std::vector<LaunchNode> nodes_;
    std::vector<uint64_t> addresses_;
    std::vector<char> touched_;  // nodes whose payload the executable graph does not have yet
    std::vector<std::vector<void*>> pointers_;
    std::vector<std::unique_ptr<size_t>> sizes_;
    void* executable_ = nullptr;
};

}  // namespace cudnn_bindgen
