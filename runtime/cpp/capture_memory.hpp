// Memory to capture launches on. It is mapped, so that a kernel which runs at once does no harm; it
// is nobody's; and it holds a pattern, so that such a kernel shows.
#pragma once

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>

#include "capture.hpp"
#include "launch_nodes.hpp"

namespace cudnn_bindgen {

// Three ranges of addresses over one small piece of memory, mapped again and again: whatever is
// written through any address, the piece shows it. Made once for each context, and kept.
class CaptureMemory {
  public:
    enum : size_t { kRanges = 3 };

    // The memory of `context`, which is current, with room for `bytes` from each range's start on,
    // for the caller alone while the lock is held. `stream` is a blocking one of the caller's.
    // Returns why there is none, or an empty string.
    static Reason borrow(const DriverApi& driver, void* context, int device, void* stream,
                         size_t bytes, std::unique_lock<std::mutex>& lock,
                         CaptureMemory*& memory) {
        static std::mutex& mutex = *new std::mutex;
        // Never freed: a kernel that left its stream may still be running on it.
        static auto& all = *new std::map<void*, CaptureMemory*>;
        lock = std::unique_lock<std::mutex>(mutex);
        CaptureMemory*& found = all[context];
        if (!found || found->room_ < std::min<size_t>(bytes, kLargest)) {
            std::unique_ptr<CaptureMemory> made(new CaptureMemory(driver, bytes));
            Reason reason = made->make(device, stream);
            if (!reason.empty()) return reason;
            found = made.release();
        }
        memory = found;
        return {};
    }

    // Only of one that could not be made: nothing has run on it.
    ~CaptureMemory() {
        RelaxedCapture relaxed(driver_);
        for (size_t index = 0; index < kRanges; ++index) {
            if (mapped_[index]) driver_.unmap(range(index), mapped_[index]);
        }
        if (base_) driver_.free_addresses(base_, size());
        if (handle_) driver_.release_memory(handle_);
        if (words_) driver_.free_host(words_);
    }
    CaptureMemory(const CaptureMemory&) = delete;
    CaptureMemory& operator=(const CaptureMemory&) = delete;

    // Two ranges differ in the upper 32 bits of every address, and lie differently far apart.
    uint64_t range(size_t index) const { return base_ + (index == 2 ? 3 : index) * kStep; }

    // Waits for whatever ran at once, looks whether it wrote anything, and restores the pattern.
    // What a blocking stream does waits for the work on the legacy stream, which is where a kernel
    // goes that is given no stream. Asking the legacy stream itself would break a capture that goes
    // on on a blocking stream of another thread (H200, driver 580).
    Reason find_writes(void* blocking_stream, bool& written) {
        RelaxedCapture relaxed(driver_);
        int status = driver_.copy_to_host(words_, base_, piece_, blocking_stream);
        if (!status) status = driver_.synchronize(blocking_stream);
        if (status) return failed("reading the memory that launches are captured on", status);
        written = !has_pattern();
        return written ? write_pattern(blocking_stream) : Reason{};
    }

  private:
    enum : size_t {
        kPage = size_t{1} << 21,     // what the driver maps at least
        kSmallest = size_t{1} << 24,
        kLargest = size_t{1} << 32,  // of an operand that spans more, the first 4 GiB are mapped
        kMappings = 64,              // of each range: one takes 25 us (H200)
        kStep = 2 * kLargest,        // from the first range to the second
    };

    size_t size() const { return 3 * kStep + room_; }

    CaptureMemory(const DriverApi& driver, size_t bytes) : driver_(driver), room_(kSmallest) {
        while (room_ < std::min<size_t>(bytes, kLargest)) room_ *= 2;
        piece_ = std::max<size_t>(kPage, room_ / kMappings);
    }

    Reason make(int device, void* stream) {
        RelaxedCapture relaxed(driver_);
        MemoryProperties properties{};
        properties.type = kPinnedMemory;
        properties.location = {kOnDevice, device};
        const MemoryAccess access{{kOnDevice, device}, kReadWrite};
        int status = driver_.create_memory(&handle_, piece_, &properties, 0);
        if (status) return failed("cuMemCreate", status);
        status = driver_.reserve(&base_, size(), kPage, 0, 0);
        if (status) return failed("cuMemAddressReserve", status);
        for (size_t index = 0; index < kRanges; ++index) {
            for (size_t offset = 0; offset < room_; offset += piece_) {
                status = driver_.map(range(index) + offset, piece_, 0, handle_, 0);
                if (status) return failed("cuMemMap", status);
                mapped_[index] += piece_;
            }
            status = driver_.set_access(range(index), room_, &access, 1);
            if (status) return failed("cuMemSetAccess", status);
        }
        status = driver_.allocate_host(reinterpret_cast<void**>(&words_), piece_);
        if (status) return failed("cuMemAllocHost", status);
        return write_pattern(stream);
    }

    // Small numbers of 8 bytes. As lengths and indices, of 4 bytes or 8, they are within bounds; as
    // floats they are so close to zero that arithmetic does not give them again.
    static uint64_t word(size_t index) { return 1 + index % 7; }

    bool has_pattern() const {
        for (size_t index = 0; index < piece_ / sizeof(uint64_t); ++index) {
            if (words_[index] != word(index)) return false;
        }
        return true;
    }

    Reason write_pattern(void* stream) {
        for (size_t index = 0; index < piece_ / sizeof(uint64_t); ++index) {
            words_[index] = word(index);
        }
        int status = driver_.copy_to_device(base_, words_, piece_, stream);
        if (!status) status = driver_.synchronize(stream);
        return status ? failed("writing the memory that launches are captured on", status)
                      : Reason{};
    }

    const DriverApi& driver_;
    size_t room_;   // bytes of each range
    size_t piece_;  // bytes of memory behind them all
    uint64_t handle_ = 0;
    uint64_t base_ = 0;
    size_t mapped_[kRanges] = {0, 0, 0};
    uint64_t* words_ = nullptr;  // on the host, pinned
};

}  // namespace cudnn_bindgen
