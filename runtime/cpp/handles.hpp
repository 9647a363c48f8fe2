// Which thread has which handles: its own, and those that ended threads left to the next one.
// For handle.pyx alone, so that what a thread has is found without a call into another library.
#pragma once

#include <mutex>
#include <vector>

namespace {

// Handles that ended threads left. Never destroyed: it must outlive every thread.
struct IdleHandles {
    std::mutex mutex;
    std::vector<void*> handles;
};

IdleHandles& idle_handles() {
    static IdleHandles* const idle = new IdleHandles;
    return *idle;
}

struct ThreadHandles {
    std::vector<void*> handles;
    void* last = nullptr;

    ~ThreadHandles() {
        std::lock_guard<std::mutex> lock(idle_handles().mutex);
        auto& idle = idle_handles().handles;
        idle.insert(idle.end(), handles.begin(), handles.end());
    }
};

thread_local ThreadHandles this_thread;

void* last_handle() { return this_thread.last; }
void set_last_handle(void* handle) { this_thread.last = handle; }
std::vector<void*>* own_handles() { return &this_thread.handles; }

template <typename Match>
void* take_idle(Match match) {
    std::lock_guard<std::mutex> lock(idle_handles().mutex);
    auto& idle = idle_handles().handles;
    for (auto it = idle.begin(); it != idle.end(); ++it) {
        if (match(*it)) {
            void* handle = *it;
            idle.erase(it);
            return handle;
        }
    }
    return nullptr;
}

// A handle begins with {cudnn, context}.
void* take_idle_handle(void* context) {
    return take_idle([=](void* handle) { return static_cast<void**>(handle)[1] == context; });
}
void* take_any_idle_handle() { return take_idle([](void*) { return true; }); }

}  // namespace
