// Workspace sizes under overrides, remembered by value.
#pragma once

#include <mutex>
#include <string>
#include <unordered_map>

#include "override_values.hpp"

namespace cudnn_bindgen {

// Workspace sizes that cuDNN has told, by device and values; of one plan, used by all threads.
class OverrideSizes {
  public:
    enum : size_t { kMaxSizes = 1024 };

    bool find(int device, const OverrideValues& values, int64_t* size) {
        std::lock_guard<std::mutex> lock(mutex_);
        const auto found = sizes_.find(key_of(device, values));
        if (found == sizes_.end()) return false;
        *size = found->second;
        return true;
    }
    void keep(int device, const OverrideValues& values, int64_t size) {
        std::lock_guard<std::mutex> lock(mutex_);
        // Whoever has so many shapes asks again: 2 us a call.
        if (sizes_.size() >= kMaxSizes) sizes_.clear();
        sizes_[key_of(device, values)] = size;
    }

  private:
    static std::string key_of(int device, const OverrideValues& values) {
        std::string key = values.key();
        key.push_back(static_cast<char>(device));
        return key;
    }

    std::mutex mutex_;
    std::unordered_map<std::string, int64_t> sizes_;
};

}  // namespace cudnn_bindgen
