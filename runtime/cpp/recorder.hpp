// From a function that launches something to a record of it. Knows nothing about cuDNN.
#pragma once

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "capture_memory.hpp"
#include "launch_record.hpp"

namespace cudnn_bindgen {

// The reason where what is recorded failed by itself.
constexpr char kLaunchFailed[] = "the launch failed while it was captured";
// The reason where some of it ran although its stream was being captured.
constexpr char kLeavesStream[] = "it launches work outside of the stream that it is given";

// Enqueues the work with these addresses on this stream; returns 0 if all of it was enqueued.
using LaunchFunction = int (*)(void* what, void* const* addresses, void* stream);

namespace detail {

// A stream for a moment, with the priority of another: kernel nodes inherit that of the stream that
// captures them.
class PrivateStream {
  public:
    PrivateStream(const DriverApi& driver, unsigned flags, void* like) : driver_(driver) {
        RelaxedCapture relaxed(driver_);
        int priority = 0;
        // The legacy stream's is 0; asking would break captures on blocking streams.
        if (like) status_ = driver_.stream_get_priority(like, &priority);
        if (!status_) status_ = driver_.stream_create(&stream_, flags, priority);
    }
    ~PrivateStream() {
        RelaxedCapture relaxed(driver_);
        if (stream_) driver_.stream_destroy(stream_);
    }
    PrivateStream(const PrivateStream&) = delete;
    PrivateStream& operator=(const PrivateStream&) = delete;
    void* get() const { return stream_; }
    int status() const { return status_; }

  private:
    const DriverApi& driver_;
    void* stream_ = nullptr;
    int status_ = 0;
};

class CapturedGraph {
  public:
    explicit CapturedGraph(const DriverApi& driver) : driver_(driver) {}
    ~CapturedGraph() {
        RelaxedCapture relaxed(driver_);
        if (graph_) driver_.destroy_graph(graph_);
    }
    CapturedGraph(const CapturedGraph&) = delete;
    CapturedGraph& operator=(const CapturedGraph&) = delete;

    Reason capture(LaunchFunction function, void* what, void* stream, int mode, Sample& sample) {
        int status = driver_.begin_capture(stream, mode);
        if (status) return failed("cuStreamBeginCapture", status);
        std::vector<void*> addresses;
        for (uint64_t address : sample.addresses) {
            addresses.push_back(reinterpret_cast<void*>(address));
        }
        const int launched = function(what, addresses.data(), stream);
        status = driver_.end_capture(stream, &graph_);
        if (launched) return kLaunchFailed;
        if (status) return failed("cuStreamEndCapture", status);
        return read_launch(driver_, graph_, sample.launch);
    }

  private:
    const DriverApi& driver_;
    void* graph_ = nullptr;
};

// Of an operand's address in a capture: its own part of the range, before what it may touch.
constexpr uint64_t kPlace = uint64_t{1} << 20;

// The addresses of the captures: each in a range of its own, none of them the call's. Whatever
// depends on more than the address itself differs between them in a way that no single operand
// explains:
// - alignment: in the first all are multiples of 4 KiB, in the second of 64 KiB, in the third none
//   is better aligned than it is to be proven for;
// - order: in the first it is mixed, in the second addresses rise with the operand, in the third
//   they fall;
// - the upper half of an address: no two ranges have one in common;
// - sums and differences: distances are random, the same ones in every process.
inline void choose_addresses(const CaptureMemory& memory, const uint64_t* alignments, size_t count,
                             Sample (&samples)[CaptureMemory::kRanges]) {
    std::mt19937_64 random(count);
    std::vector<size_t> mixed(count);
    std::iota(mixed.begin(), mixed.end(), 0);
    std::shuffle(mixed.begin(), mixed.end(), random);
    for (size_t operand = 0; operand < count; ++operand) {
        const uint64_t odd = 1 + 2 * (random() % (kPlace / alignments[operand] / 2));
        const uint64_t offsets[] = {mixed[operand] * kPlace + random() % (kPlace >> 12) * 4096,
                                    operand * kPlace + random() % (kPlace >> 16) * 65536,
                                    (count - 1 - operand) * kPlace + alignments[operand] * odd};
        for (size_t index = 0; index < CaptureMemory::kRanges; ++index) {
            samples[index].addresses.push_back(memory.range(index) + offsets[index]);
        }
    }
}

}  // namespace detail

// What is to be launched: a function, and the addresses it runs on now. `alignments` in bytes are
// what each address is to be proven for; a record must not be used with less.
struct Recordable {
    LaunchFunction launch;
    size_t (*largest)(void* what);  // bytes from an operand's address on that the launch may touch
    void* what;
    void* context;
    int device;
    void* stream;
    void* const* addresses;
    const uint64_t* alignments;
    size_t count;
};

namespace detail {

// The captures of a launch, on memory of their own; they live until this goes.
class Captures {
  public:
    Captures(const DriverApi& driver, const Recordable& work)
        : driver_(driver),
          work_(work),
          capturing_(driver, kNonBlockingStream, work.stream),
          looking_(driver, kBlockingStream, nullptr) {}

    // Captures the launch so many times. Returns why it cannot be recorded, or an empty string.
    Reason make(size_t times, int mode) {
        for (const PrivateStream* stream : {&capturing_, &looking_}) {
            if (stream->status()) return failed("creating a stream", stream->status());
        }
        const size_t bytes = work_.count * kPlace + work_.largest(work_.what);
        std::unique_lock<std::mutex> lock;
        CaptureMemory* memory = nullptr;
        Reason reason = CaptureMemory::borrow(driver_, work_.context, work_.device,
                                              looking_.get(), bytes, lock, memory);
        if (!reason.empty()) return reason;
        choose_addresses(*memory, work_.alignments, work_.count, samples_);
        for (size_t index = 0; index < times && reason.empty(); ++index) {
            reason = graphs_[index].capture(work_.launch, work_.what, capturing_.get(), mode,
                                            samples_[index]);
        }
        bool written = false;
        const Reason unknown = memory->find_writes(looking_.get(), written);
        if (!unknown.empty()) return unknown;
        return written ? kLeavesStream : reason;
    }

    const Sample& sample(size_t index) const { return samples_[index]; }

  private:
    const DriverApi& driver_;
    const Recordable& work_;
    PrivateStream capturing_;
    PrivateStream looking_;  // at what was written meanwhile
    Sample samples_[CaptureMemory::kRanges];
    CapturedGraph graphs_[CaptureMemory::kRanges] = {
        CapturedGraph(driver_), CapturedGraph(driver_), CapturedGraph(driver_)};
};

}  // namespace detail

// Captures a launch once, to see whether all of it stays on its stream. Returns `kLeavesStream`, an
// empty string if it stays, or why it is not known. The launch may be the first one: the capture is
// relaxed, so that it can load its kernels.
inline Reason capture_once(const DriverApi& driver, const Recordable& work) {
    RelaxedCapture relaxed(driver);
    return detail::Captures(driver, work).make(1, kRelaxedCapture);
}

// Captures the launch three times and learns from it; hands what the call launches and the patches
// to `use`, while the captured graphs live. Returns why it cannot be recorded, or what `use`
// returns.
template <typename Use>
Reason learn_launch(const DriverApi& driver, const Recordable& work, Use use) {
    detail::Captures captures(driver, work);
    Reason reason = captures.make(CaptureMemory::kRanges, kThreadLocalCapture);
    if (!reason.empty()) return reason;
    const Sample& first = captures.sample(0);
    if (first.launch.nodes.empty()) return "it launches nothing";
    std::vector<Patch> patches;
    reason = find_patches(first, captures.sample(1), captures.sample(2), patches);
    if (!reason.empty()) return reason;
    Sample now{first.launch, {}};
    for (size_t operand = 0; operand < work.count; ++operand) {
        now.addresses.push_back(reinterpret_cast<uint64_t>(work.addresses[operand]));
    }
    detail::patch(now.launch.nodes, patches, now.addresses);
    return use(now, patches);
}

// Makes a record of a launch, or says why not.
inline Reason record_launch(const DriverApi& driver, const Recordable& work,
                            std::unique_ptr<LaunchRecord>& record) {
    return learn_launch(driver, work, [&](const Sample& sample, const std::vector<Patch>& patches) {
        return LaunchRecord::build(driver, work.context, sample, patches, work.stream, record);
    });
}

}  // namespace cudnn_bindgen
