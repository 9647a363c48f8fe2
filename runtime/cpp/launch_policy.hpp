// Each call's choice: launch its record, make one first, or go direct.
#pragma once

#include <string>

#include "record_store.hpp"

namespace cudnn_bindgen {

// One call, as records see it: a function of addresses. What else may differ from call to call is
// in `key`; another one needs another record, of which `capacity` are kept for each stream.
struct RecordedCall {
    const DriverApi* driver;
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

inline Reason says_missing(const DriverApi& driver) {
    return std::string("the driver has no ") + driver.missing_for_records;
}

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

inline LaunchRecord* make_record(RecordEntry& entry, const RecordedCall& call,
                                 LaunchCounts& counts) {
    std::unique_ptr<LaunchRecord> record;
    const bool leaves = call.stream_use->load() == kLeaves;
    const Reason reason = leaves ? kLeavesStream : record_launch(*call.driver, call.work, record);
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
    if (call.driver->missing_for_records) {
        if (!counts.refused.load(std::memory_order_relaxed)) {
            counts.refuse(detail::says_missing(*call.driver));
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
        record = detail::make_record(entry, call, counts);
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
    if (call.driver->missing_for_records) return;
    Recordable work = call.work;
    work.stream = nullptr;  // it may be capturing, and must not be asked for its priority then
    detail::note_stream_use(call, capture_once(*call.driver, work));
}

}  // namespace cudnn_bindgen
