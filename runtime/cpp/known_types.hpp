// Which types of tensors have an exchange API of DLPack.
#pragma once

#include <atomic>
#include <mutex>

#include "dlpack.hpp"

namespace cudnn_bindgen {

// The types that were seen, never forgotten, so that looking one up takes no lock. A program
// has a few: tensors and parameters of one framework. Those beyond are looked up each time.
struct KnownTypes {
    static constexpr int kCapacity = 16;
    const void* types[kCapacity];
    const DLPackExchangeAPI* apis[kCapacity];
    std::atomic<int> count{0};
    std::mutex adding;

    const DLPackExchangeAPI* find(const void* type) const {
        const int known = count.load(std::memory_order_acquire);
        for (int i = 0; i < known; ++i) {
            if (types[i] == type) return apis[i];
        }
        return nullptr;
    }
    // Whether it was added: the caller then keeps the type and its API alive.
    bool add(const void* type, const DLPackExchangeAPI* api) {
        std::lock_guard<std::mutex> lock(adding);
        const int known = count.load(std::memory_order_relaxed);
        if (known == kCapacity || find(type)) return false;
        types[known] = type;
        apis[known] = api;
        count.store(known + 1, std::memory_order_release);
        return true;
    }
};

static KnownTypes& known_types() {
    static KnownTypes* const known = new KnownTypes;
    return *known;
}

}  // namespace cudnn_bindgen
