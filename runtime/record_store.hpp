// Which launches have a record: kept for one handle, by plan, stream and scalar values.
#pragma once

#include <algorithm>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "recorder.hpp"

namespace cudnn_bindgen {

// A plan on one stream of one handle. Used by the handle's thread during a call, without a lock;
// emptied by whoever retires the plan, when no call is inside it.
struct RecordEntry {
    struct Variant {
        std::string scalars;  // their bytes
        std::unique_ptr<LaunchRecord> record;
    };

    std::mutex emptying;
    std::vector<Variant> variants;  // the one used last comes first
    std::string scalars;            // of the last call that had no record
    int calls = 0;                  // so many in a row had these
    int recorded = 0;
    bool direct_only = false;

    LaunchRecord* find(const char* bytes, size_t size) {
        for (size_t index = 0; index < variants.size(); ++index) {
            const std::string& own = variants[index].scalars;
            if (own.size() != size || std::memcmp(own.data(), bytes, size)) continue;
            const auto begin = variants.begin();
            std::rotate(begin, begin + index, begin + index + 1);
            return begin->record.get();
        }
        return nullptr;
    }

    // Whether the call that comes now should be recorded first: the same one went direct before.
    bool is_due(const char* bytes, size_t size, int after) {
        if (scalars.size() == size && !std::memcmp(scalars.data(), bytes, size)) {
            return calls++ >= after;
        }
        scalars.assign(bytes, size);
        calls = 1;
        return false;
    }

    void empty() {
        std::lock_guard<std::mutex> lock(emptying);
        variants.clear();
        direct_only = true;
    }
};

// All entries made for a plan, so that retiring the plan destroys its records.
class PlanRecords {
  public:
    void add(const std::shared_ptr<RecordEntry>& entry) {
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
    std::vector<std::shared_ptr<RecordEntry>> entries_;
};

// The entries of one handle, bounded: the one not used for longest goes first.
class RecordStore {
  public:
    enum : size_t { kMaxEntries = 256, kMaxVariants = 4 };
    enum : int { kMaxRecorded = 16 };  // per entry; a stream of ever new scalars goes direct

    RecordStore() = default;
    // Plans that are still loaded know the entries too, but nobody will launch their records.
    ~RecordStore() {
        for (const auto& item : entries_) item.second->empty();
    }
    RecordStore(const RecordStore&) = delete;
    RecordStore& operator=(const RecordStore&) = delete;

    // `plan` is an id that no other plan ever has.
    RecordEntry* entry(uint64_t plan, void* stream, PlanRecords& records) {
        const Key key{plan, stream};
        if (last_ && last_key_ == key) return last_;
        auto found = index_.find(key);
        if (found == index_.end()) {
            if (index_.size() >= kMaxEntries) evict();
            entries_.push_front({key, std::make_shared<RecordEntry>()});
            found = index_.emplace(key, entries_.begin()).first;
            records.add(entries_.front().second);
        } else {
            entries_.splice(entries_.begin(), entries_, found->second);
        }
        last_key_ = key;
        last_ = found->second->second.get();
        return last_;
    }

    static LaunchRecord* keep(RecordEntry& entry, std::unique_ptr<LaunchRecord> record) {
        if (entry.variants.size() >= kMaxVariants) entry.variants.pop_back();
        entry.variants.insert(entry.variants.begin(), {entry.scalars, std::move(record)});
        if (++entry.recorded >= kMaxRecorded) entry.direct_only = true;
        return entry.variants.front().record.get();
    }

  private:
    struct Key {
        uint64_t plan;
        void* stream;
        bool operator==(const Key& other) const {
            return plan == other.plan && stream == other.stream;
        }
    };
    struct Hash {
        size_t operator()(const Key& key) const {
            return std::hash<uint64_t>()(key.plan * 0x9E3779B97F4A7C15u) ^
                   std::hash<void*>()(key.stream);
        }
    };
    using Entries = std::list<std::pair<Key, std::shared_ptr<RecordEntry>>>;

    void evict() {
        entries_.back().second->empty();
        index_.erase(entries_.back().first);
        entries_.pop_back();
        last_ = nullptr;
    }

    Entries entries_;  // the one used last comes first
    std::unordered_map<Key, Entries::iterator, Hash> index_;
    Key last_key_{};
    RecordEntry* last_ = nullptr;
};

}  // namespace cudnn_bindgen
