// Launch records as others see them: policies, counts, descriptions, and a plan's hold on its own.
// What makes and launches records is much more, and included where that is done alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace cudnn_bindgen {

// Why something cannot be recorded; empty: it can.
using Reason = std::string;

enum LaunchPolicy : int { kAuto = 0, kDirect = 1, kRecord = 2 };

// Whether a plan's launches keep to the stream that they are given, as far as is known.
enum StreamUse : int { kUnknown = 0, kStays = 1, kLeaves = 2 };

// What became of a graph's calls, over all threads.
struct LaunchCounts {
    std::atomic<uint64_t> direct{0};
    std::atomic<uint64_t> unchanged{0};  // records launched with the addresses they had
    std::atomic<uint64_t> patched{0};    // records launched with others
    std::atomic<uint64_t> recorded{0};
    std::atomic<uint64_t> refused{0};
    std::atomic<uint64_t> evicted{0};  // records that gave way to others
    std::atomic<int> last_path{kDirect};

    void refuse(const Reason& reason) {
        std::lock_guard<std::mutex> lock(mutex_);
        reason_ = reason;
        refused.fetch_add(1, std::memory_order_relaxed);
    }
    // Of the last refusal; empty if there was none.
    Reason reason() {
        std::lock_guard<std::mutex> lock(mutex_);
        return reason_;
    }

  private:
    std::mutex mutex_;
    Reason reason_;
};

// An 8-byte word of a node's payload that holds ``addresses[operand] + addend``.
struct Patch {
    uint32_t node;
    uint32_t offset;
    uint32_t operand;
    uint64_t addend;
};

// A node of a launch, for people.
struct NodeDescription {
    std::string kind;      // kernel, memset, memcpy or empty
    std::string function;  // a kernel's name, as the driver knows it
    unsigned grid[3] = {0, 0, 0};
    unsigned block[3] = {0, 0, 0};
    unsigned shared_bytes = 0;
    size_t bytes = 0;  // of parameters
    std::vector<Patch> patches;
};

// What holds records that may have to go at once.
class Emptied {
  public:
    virtual void empty() = 0;

  protected:
    ~Emptied() = default;
};

// All entries made for a plan, so that retiring the plan destroys its records.
class PlanRecords {
  public:
    void add(const std::shared_ptr<Emptied>& entry) {
        std::lock_guard<std::mutex> lock(mutex_);
        // Those that no handle holds any more were evicted.
        entries_.erase(std::remove_if(entries_.begin(), entries_.end(),
                                      [](const auto& other) { return other.use_count() == 1; }),
                       entries_.end());
        entries_.push_back(entry);
    }
    void empty() {
        std::lock_guard<std::mutex> lock(mutex_);
        for (const auto& entry : entries_) entry->empty();
        entries_.clear();
    }

  private:
    std::mutex mutex_;
    std::vector<std::shared_ptr<Emptied>> entries_;
};

class RecordStore;  // all records of one handle

}  // namespace cudnn_bindgen
