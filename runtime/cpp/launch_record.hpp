// A launch to be made again: a graph of its own, and executables of it for the addresses in use.
#pragma once

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "executable.hpp"

namespace cudnn_bindgen {

// Most callers come with the same few sets of addresses again and again (the layers of a model, the
// buffers of a double-buffered loop), and a launch with the addresses it had last needs no patch.
// So a set that comes for the second time gets an executable of its own. All others share one and
// patch it each time.
class LaunchRecord {
  public:
    enum : size_t { kMaxExecutables = 32 };

    // Builds a fresh graph from a captured launch. The captured one is not instantiated: it holds
    // user objects of the library that launched it, and each launch would pay 1 to 2 us for them.
    static Reason build(const DriverApi& driver, void* context, const Sample& sample,
                        std::vector<Patch> patches, void* stream,
                        std::unique_ptr<LaunchRecord>& record) {
        std::unique_ptr<LaunchRecord> built(new LaunchRecord(
            driver, PatchIndex(std::move(patches), sample.addresses.size())));
        built->shared_ = std::make_unique<Executable>(driver, context, sample.launch.nodes,
                                                      sample.addresses);
        RelaxedCapture relaxed(driver);
        Reason reason = built->make_graph(sample.launch);
        if (reason.empty()) reason = built->shared_->instantiate(built->graph_, stream);
        built->template_ = built->shared_->copy();
        if (reason.empty()) record = std::move(built);
        return reason;
    }

    ~LaunchRecord() {
        RelaxedCapture relaxed(driver_);
        own_.clear();
        shared_.reset();
        if (graph_) driver_.destroy_graph(graph_);
    }
    LaunchRecord(const LaunchRecord&) = delete;
    LaunchRecord& operator=(const LaunchRecord&) = delete;

    // Launches with these addresses; returns the CUresult, and whether anything was patched. After
    // a failure the record must not be used again.
    int launch(void* const* addresses, size_t count, void* stream, bool* patched) {
        *patched = false;
        if (last_ && last_->has(addresses)) return driver_.launch(last_->get(), stream);
        const uint64_t hash = hash_of(addresses, count);
        Executable* executable = find(hash, addresses);
        if (!executable) {
            *patched = true;
            executable = is_second_miss(hash) ? give_own(hash, stream) : shared_.get();
            if (!executable) executable = shared_.get();
            const int status = executable->patch(patches_, handles_.data(), addresses);
            if (status) return status;
        }
        last_ = executable;
        return driver_.launch(executable->get(), stream);
    }

    // Keeps at most so many executables, the shared one included.
    void limit_executables(size_t count) { max_executables_ = std::min<size_t>(count, kMaxExecutables); }

    // The CUgraphExec used last, for whoever measures what a launch costs at least.
    void* executable() const { return (last_ ? last_ : shared_.get())->get(); }

  private:
    struct Own {
        uint64_t hash;
        std::unique_ptr<Executable> executable;
    };

    LaunchRecord(const DriverApi& driver, PatchIndex patches)
        : driver_(driver), patches_(std::move(patches)) {}

    static uint64_t hash_of(void* const* addresses, size_t count) {
        uint64_t hash = 0;
        for (size_t operand = 0; operand < count; ++operand) {
            hash = (hash ^ reinterpret_cast<uint64_t>(addresses[operand])) * 0x9E3779B97F4A7C15u;
            hash ^= hash >> 29;
        }
        return hash;
    }

    Executable* find(uint64_t hash, void* const* addresses) {
        for (size_t index = 0; index < own_.size(); ++index) {
            if (own_[index].hash != hash || !own_[index].executable->has(addresses)) continue;
            // The one used last stands at the end; the front goes first when room is needed.
            std::rotate(own_.begin() + index, own_.begin() + index + 1, own_.end());
            return own_.back().executable.get();
        }
        return shared_->has(addresses) ? shared_.get() : nullptr;
    }

    bool is_second_miss(uint64_t hash) {
        if (std::find(missed_.begin(), missed_.end(), hash) != missed_.end()) return true;
        missed_[next_missed_++ % missed_.size()] = hash;
        return false;
    }

    // An executable that no other set of addresses uses; null if there is no memory for one.
    Executable* give_own(uint64_t hash, void* stream) {
        if (own_.size() + 1 >= max_executables_) {
            std::rotate(own_.begin(), own_.begin() + 1, own_.end());
            own_.back().hash = hash;
            return own_.back().executable.get();
        }
        if (no_room_) return nullptr;
        std::unique_ptr<Executable> executable = template_->copy();
        if (!executable->instantiate(graph_, stream).empty()) {
            no_room_ = true;  // trying at each call would cost more than it could save
            return nullptr;
        }
        own_.push_back({hash, std::move(executable)});
        return own_.back().executable.get();
    }

    Reason make_graph(const Launch& launch) {
        int status = driver_.create_graph(&graph_, 0);
        if (status) return failed("cuGraphCreate", status);
        handles_.resize(launch.nodes.size());
        for (size_t index = 0; index < handles_.size(); ++index) {
            status = shared_->add_to(graph_, index, &handles_[index]);
            if (status) return failed("adding a node", status);
            if (launch.nodes[index].type != kKernelNode) continue;
            status = driver_.copy_attributes(handles_[index], launch.handles[index]);
            if (status) return failed("cuGraphKernelNodeCopyAttributes", status);
        }
        for (const LaunchEdge& edge : launch.edges) {
            // One at a time keeps the edge's data, such as a programmatic dependency.
            status = driver_.add_edges(graph_, &handles_[edge.from], &handles_[edge.to],
                                       &edge.data, 1);
            if (status) return failed("cuGraphAddDependencies", status);
        }
        return {};
    }

    const DriverApi& driver_;
    const PatchIndex patches_;
    void* graph_ = nullptr;
    std::vector<void*> handles_;  // the graph's nodes
    std::unique_ptr<Executable> shared_;
    std::unique_ptr<Executable> template_;  // what the graph itself holds; never instantiated
    std::vector<Own> own_;                  // the one used last comes last
    std::array<uint64_t, 64> missed_{};     // hashes of sets that had no executable
    size_t next_missed_ = 0;
    bool no_room_ = false;
    size_t max_executables_ = kMaxExecutables;
    Executable* last_ = nullptr;
};

}  // namespace cudnn_bindgen
