// Things that captured CUDA graphs need, kept alive while such a graph may still be launched.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <vector>

#include "driver.hpp"

namespace cudnn_bindgen {

// The id of the capture that goes on on `stream`, which the driver never uses twice, and the graph
// that it makes; 0 if there is none, or it is broken.
inline uint64_t find_capture(const DriverApi& driver, void* stream, void** graph) {
    int status = 0;
    uint64_t capture = 0;
    const int failed = driver.get_capture_info(stream, &status, &capture, graph, nullptr, nullptr);
    return !failed && status == kActiveCapture ? capture : 0;
}

inline uint64_t capture_id(const DriverApi& driver, void* stream) {
    void* graph = nullptr;
    return find_capture(driver, stream, &graph);
}

// What its maker and any number of CUDA graphs share. The driver counts for us: a captured graph,
// its clones, its parents and what is instantiated from them share one reference, which is dropped
// when the last of them is gone and their launches have run (CUDA programming guide, user objects).
class Kept {
  public:
    // `unneeded` is called when the maker has let go and the last graph goes after that: by the
    // driver, on any thread, so it must not call CUDA nor wait for anyone who might.
    Kept(void* what, void (*unneeded)(void* what)) : what_(what), unneeded_(unneeded) {}
    Kept(const Kept&) = delete;
    Kept& operator=(const Kept&) = delete;

    // Keeps it for the graph that `stream` is being captured into: one user object for each
    // capture, however many calls are in it. Returns the CUresult. No lock is held meanwhile: the
    // driver may have one of its own, and be about to tell us that another graph is gone.
    int hold(const DriverApi& driver, void* stream) {
        void* graph = nullptr;
        const uint64_t capture = find_capture(driver, stream, &graph);
        // Without a graph there is nothing to keep it for: the launch that follows will fail.
        if (!capture || is_held_for(capture)) return 0;
        const int result = retain(driver, graph);
        if (!result) remember(capture);
        return result;
    }

    // The maker lets go. True: no graph needs it, so the maker destroys it.
    bool let_go() { return holders_.fetch_sub(1) == 1; }

  private:
    enum : unsigned { kNoDestructorSync = 1, kMoveReference = 1 };  // the only flags there are

    int retain(const DriverApi& driver, void* graph) {
        void* object = nullptr;
        holders_.fetch_add(1);
        int status = driver.create_user_object(&object, this, graph_is_gone, 1, kNoDestructorSync);
        if (status) {
            holders_.fetch_sub(1);
            return status;
        }
        status = driver.retain_user_object(graph, object, 1, kMoveReference);
        if (status) driver.release_user_object(object, 1);  // calls graph_is_gone
        return status;
    }

    static void graph_is_gone(void* kept) {
        Kept* self = static_cast<Kept*>(kept);
        if (self->let_go()) self->unneeded_(self->what_);
    }

    bool is_held_for(uint64_t capture) {
        std::lock_guard<std::mutex> lock(mutex_);
        return std::find(captures_.begin(), captures_.end(), capture) != captures_.end();
    }

    void remember(uint64_t capture) {
        std::lock_guard<std::mutex> lock(mutex_);
        captures_[next_++ % captures_.size()] = capture;
    }

    void* const what_;
    void (*const unneeded_)(void*);
    std::atomic<int> holders_{1};  // the maker, and each user object
    std::mutex mutex_;             // guards what follows
    // Ids of captures, which the driver never uses twice. A forgotten one gets a second object.
    std::array<uint64_t, 16> captures_{};
    size_t next_ = 0;
};

// What no graph needs any more, until somebody may call CUDA to destroy it. Never destroyed itself:
// graphs may go when the process does.
class Unneeded {
  public:
    void add(void* what) {
        std::lock_guard<std::mutex> lock(contents_.mutex);
        contents_.waiting.push_back(what);
        contents_.any.store(true);
    }
    // One of them, or null.
    void* take() {
        if (!contents_.any.load()) return nullptr;
        std::lock_guard<std::mutex> lock(contents_.mutex);
        if (contents_.waiting.empty()) {
            contents_.any.store(false);
            return nullptr;
        }
        void* what = contents_.waiting.back();
        contents_.waiting.pop_back();
        return what;
    }

  private:
    struct Contents {
        std::mutex mutex;
        std::vector<void*> waiting;
        std::atomic<bool> any{false};
    };
    Contents& contents_ = *new Contents;
};

}  // namespace cudnn_bindgen
