// Each call's choice: launch its record, make one first, or go direct.
#pragma once

#include <dlfcn.h>

#include <atomic>
#include <mutex>
#include <string>

#include "record_store.hpp"

namespace cudnn_bindgen {

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

// One call, as records see it: a function of addresses. What else may differ from call to call is
// in `key`; another one needs another record, of which `capacity` are kept for each stream.
struct RecordedCall {
    uint64_t plan;                 // an id that no other plan ever has
    PlanRecords* records;          // of that plan
    std::atomic<int>* stream_use;  // of the plan on the device: a StreamUse
    int policy;
    Recordable work;  // less aligned addresses go direct
    CallKey key;
    size_t capacity;
};

namespace detail {

// The same call goes direct so often before it is recorded; the first one loads its kernels.
enum : int { kDirectCallsAuto = 3, kDirectCallsRecord = 1 };
// Of all records of a plan on a stream: each takes some 10 kB of host and device memory.
enum : size_t { kMaxExecutablesOfEntry = 256 };

// Resolved once, after the runtime has loaded the driver.
class OnceDriver {
  public:
    OnceDriver() {
        void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
        missing_ = library ? driver_.resolve(library) : "libcuda.so.1";
    }
    static OnceDriver& get() {
        static OnceDriver once;
        return once;
    }
    const GraphDriver& driver() const { return driver_; }
    const char* missing() const { return missing_; }

  private:
    GraphDriver driver_{};
    const char* missing_ = nullptr;
};

inline bool is_aligned(const Recordable& work) {
    uint64_t misaligned = 0;
    for (size_t index = 0; index < work.count; ++index) {
        misaligned |=
            reinterpret_cast<uint64_t>(work.addresses[index]) & (work.alignments[index] - 1);
    }
    return misaligned == 0;
}

// `reason`: why captures of the call could not be used, or empty.
inline void note_stream_use(const RecordedCall& call, const Reason& reason) {
    if (reason == kLeavesStream) {
        call.stream_use->store(kLeaves);
    } else if (reason.empty() && call.stream_use->load() == kUnknown) {
        call.stream_use->store(kStays);
    }
}

inline LaunchRecord* make_record(const GraphDriver& driver, RecordEntry& entry,
                                 const RecordedCall& call, LaunchCounts& counts) {
    std::unique_ptr<LaunchRecord> record;
    const bool leaves = call.stream_use->load() == kLeaves;
    const Reason reason = leaves ? kLeavesStream : record_launch(driver, call.work, record);
    note_stream_use(call, reason);
    if (!reason.empty()) {
        // What cuDNN refuses of one call's shapes says nothing of the others.
        if (call.key.shape_bytes && reason == kLaunchFailed) {
            entry.forget(call.key);
        } else {
            entry.go_direct();
        }
        counts.refuse(reason);
        return nullptr;
    }
    counts.recorded.fetch_add(1, std::memory_order_relaxed);
    // Where there may be many records, each gets fewer executables.
    record->limit_executables(std::max<size_t>(2, kMaxExecutablesOfEntry / call.capacity));
    LaunchRecord* kept = record.get();
    counts.evicted.fetch_add(entry.keep(call.key, std::move(record), call.capacity),
                             std::memory_order_relaxed);
    return kept;
}

}  // namespace detail

// Launches `call` through a record and returns true, or returns false: the caller launches it
// direct then. `store` is the calling thread's own; null at first. Not for a stream that is being
// captured: its graph gets the launch's own nodes.
inline bool launch_recorded(RecordStore*& store, const RecordedCall& call, LaunchCounts& counts) {
    using detail::OnceDriver;
    const OnceDriver& once = OnceDriver::get();
    if (once.missing()) {
        if (!counts.refused.load(std::memory_order_relaxed)) {
            counts.refuse(std::string("the driver has no ") + once.missing());
        }
        return false;
    }
    if (!detail::is_aligned(call.work)) return false;
    if (!store) store = new RecordStore;
    RecordEntry& entry = *store->entry(call.plan, call.work.stream, *call.records);
    LaunchRecord* record = entry.find(call.key);
    if (!record) {
        const int after = call.policy == kRecord ? detail::kDirectCallsRecord
                                                 : detail::kDirectCallsAuto;
        if (!entry.is_due(call.key, after, call.capacity)) return false;
        record = detail::make_record(once.driver(), entry, call, counts);
        if (!record) return false;
    }
    bool patched = false;
    const Recordable& work = call.work;
    const int status = record->launch(work.addresses, work.count, work.stream, &patched);
    if (status) {
        // The direct path will work, or say what is wrong.
        entry.empty();
        counts.refuse(failed("launching the record", status));
        return false;
    }
    (patched ? counts.patched : counts.unchanged).fetch_add(1, std::memory_order_relaxed);
    counts.last_path.store(kRecord, std::memory_order_relaxed);
    return true;
}

// Captures `call` once, to see what stream its launches use. What fails leaves that as it was.
inline void find_stream_use(const RecordedCall& call) {
    const detail::OnceDriver& once = detail::OnceDriver::get();
    if (once.missing()) return;
    Recordable work = call.work;
    work.stream = nullptr;  // it may be capturing, and must not be asked for its priority then
    detail::note_stream_use(call, capture_once(once.driver(), work));
}

}  // namespace cudnn_bindgen
