// Which launches have a record: kept for one handle, by plan, stream, scalars and shapes.
#pragma once

#include <algorithm>
#include <array>
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

// What may differ from call to call besides addresses, as bytes in two parts: the scalars, and a
// larger one that comes with a hash of its own.
struct CallKey {
    const char* scalars;
    size_t scalar_bytes;
    const char* shapes;
    size_t shape_bytes;
    uint64_t shape_hash;

    uint64_t hash() const {
        uint64_t hash = shape_hash;
        for (size_t index = 0; index < scalar_bytes; ++index) {
            hash = (hash ^ static_cast<unsigned char>(scalars[index])) * 0x100000001B3u;
        }
        return hash;
    }
    bool is(const std::string& bytes) const {
        return bytes.size() == scalar_bytes + shape_bytes &&
               (!scalar_bytes || !std::memcmp(bytes.data(), scalars, scalar_bytes)) &&
               (!shape_bytes || !std::memcmp(bytes.data() + scalar_bytes, shapes, shape_bytes));
    }
    std::string bytes() const {
        return std::string(scalars, scalar_bytes).append(shapes, shape_bytes);
    }
};

// A plan on one stream of one handle. Used by the handle's thread during a call, without a lock;
// emptied by whoever retires the plan, when no call is inside it.
class RecordEntry final : public Emptied {
  public:
    // So many recordings for each place are free; each further one must be earned by launches:
    // making a record costs 0.2 to 0.5 ms, launching it saves 4 to 10 us.
    enum : uint64_t { kFreeRecordings = 4, kLaunchesPerRecording = 64 };

    LaunchRecord* find(const CallKey& key) {
        const uint64_t hash = key.hash();
        for (size_t index = 0; index < hashes_.size(); ++index) {
            if (hashes_[index] != hash || !key.is(variants_[index].key)) continue;
            variants_[index].used = ++launches_;
            return variants_[index].record.get();
        }
        return nullptr;
    }

    // Whether the call that comes now should be recorded first: the same one went direct `after`
    // times before, not long ago.
    bool is_due(const CallKey& key, int after, size_t capacity) {
        const uint64_t earned = kFreeRecordings * capacity + launches_ / kLaunchesPerRecording;
        if (direct_only_ || recorded_ >= earned) return false;
        const uint64_t hash = key.hash();
        for (Candidate& candidate : candidates_) {
            if (candidate.hash == hash && candidate.calls) return candidate.calls++ >= after;
        }
        candidates_[next_candidate_++ % candidates_.size()] = {hash, 1};
        return false;
    }

    // Keeps a record for calls like this one, and returns how many others had to go.
    size_t keep(const CallKey& key, std::unique_ptr<LaunchRecord> record, size_t capacity) {
        size_t evicted = 0;
        while (variants_.size() >= capacity) {
            const auto oldest = std::min_element(
                variants_.begin(), variants_.end(),
                [](const Variant& a, const Variant& b) { return a.used < b.used; });
            hashes_.erase(hashes_.begin() + (oldest - variants_.begin()));
            variants_.erase(oldest);
            ++evicted;
        }
        // Once evicted, it has to prove again that it comes more than once.
        forget(key);
        hashes_.push_back(key.hash());
        variants_.push_back({key.bytes(), ++launches_, std::move(record)});
        return evicted;
    }

    // Counts a recording, whether it gave a record or not, and begins anew with calls like this.
    void forget(const CallKey& key) {
        for (Candidate& candidate : candidates_) {
            if (candidate.hash == key.hash()) candidate = {};
        }
        ++recorded_;
    }

    void go_direct() { direct_only_ = true; }

    void empty() override {
        std::lock_guard<std::mutex> lock(emptying_);
        variants_.clear();
        hashes_.clear();
        direct_only_ = true;
    }

  private:
    struct Variant {
        std::string key;
        uint64_t used;
        std::unique_ptr<LaunchRecord> record;
    };
    struct Candidate {
        uint64_t hash;
        int calls;
    };

    std::mutex emptying_;
    std::vector<Variant> variants_;
    std::vector<uint64_t> hashes_;  // of each variant: 64 of them are looked through in 20 ns
    std::array<Candidate, 128> candidates_{};
    size_t next_candidate_ = 0;
    uint64_t launches_ = 0;  // of records; also the time by which the oldest is known
    uint64_t recorded_ = 0;
    bool direct_only_ = false;
};

// The entries of one handle, bounded: the one not used for longest goes first.
class RecordStore {
  public:
    enum : size_t { kMaxEntries = 256 };

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
