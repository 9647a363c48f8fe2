// From a function that launches something to a record of it. Knows nothing about cuDNN.
#pragma once

#include <algorithm>
#include <memory>
#include <random>
#include <vector>

#include "launch_record.hpp"

namespace cudnn_bindgen {

// The reason where what is recorded failed by itself.
constexpr char kLaunchFailed[] = "the launch failed while it was captured";

// Enqueues the work with these addresses on this stream; returns 0 if all of it was enqueued.
using LaunchFunction = int (*)(void* what, void* const* addresses, void* stream);

namespace detail {

// A stream that only captures, with the priority of the stream that will launch the record: kernel
// nodes inherit it.
class PrivateStream {
  public:
    PrivateStream(const GraphDriver& driver, void* like) : driver_(driver) {
        RelaxedCapture relaxed(driver_);
        int priority = 0;
        status_ = driver_.stream_get_priority(like, &priority);
        if (!status_) status_ = driver_.stream_create(&stream_, kNonBlockingStream, priority);
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
    const GraphDriver& driver_;
    void* stream_ = nullptr;
    int status_ = 0;
};

class CapturedGraph {
  public:
    explicit CapturedGraph(const GraphDriver& driver) : driver_(driver) {}
    ~CapturedGraph() {
        RelaxedCapture relaxed(driver_);
        if (graph_) driver_.destroy_graph(graph_);
    }
    CapturedGraph(const CapturedGraph&) = delete;
    CapturedGraph& operator=(const CapturedGraph&) = delete;

    Reason capture(LaunchFunction function, void* what, void* stream, Sample& sample) {
        int status = driver_.begin_capture(stream, kThreadLocalCapture);
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
    const GraphDriver& driver_;
    void* graph_ = nullptr;
};

// Where `room` bytes are free that none of the addresses lies in: above all of them, or in the
// widest gap where that would leave the 47 bits of a user's address space.
inline uint64_t find_room(std::vector<uint64_t> addresses, uint64_t room) {
    addresses.push_back(0);
    std::sort(addresses.begin(), addresses.end());
    uint64_t found = addresses.back(), widest = 0;
    if (found + room <= uint64_t{1} << 47) return found;
    for (size_t index = 1; index < addresses.size(); ++index) {
        const uint64_t gap = addresses[index] - addresses[index - 1];
        if (gap <= widest) continue;
        widest = gap;
        found = addresses[index - 1];
    }
    return found;
}

// The addresses of the three captures: those of the call, and twice others that nothing is at,
// which is fine for work that is never launched. Whatever depends on more than the address itself
// differs between them in a way that no single operand explains:
// - alignment: in the second all are multiples of 2 MiB, in the third none is better aligned than
//   it is to be proven for;
// - order: in the second addresses rise with the operand, in the third they fall;
// - the upper half of an address: both are 4 GiB and more away from the first;
// - sums and differences: distances are random, the same ones in every process.
inline void choose_addresses(void* const* addresses, const uint64_t* alignments, size_t count,
                             Sample (&samples)[3]) {
    constexpr uint64_t kStep = uint64_t{1} << 32;
    constexpr uint64_t kPage = uint64_t{1} << 21;
    for (size_t operand = 0; operand < count; ++operand) {
        samples[0].addresses.push_back(reinterpret_cast<uint64_t>(addresses[operand]));
    }
    // Two steps an operand, and one or more between them and the call's own on either side.
    const uint64_t start = find_room(samples[0].addresses, 2 * (count + 2) * kStep);
    const uint64_t base = (start + 2 * kStep) / kPage * kPage;
    std::mt19937_64 random(count);
    for (size_t operand = 0; operand < count; ++operand) {
        const uint64_t rising = 2 * operand * kStep, falling = 2 * (count - operand) * kStep;
        const uint64_t odd = 1 + 2 * (random() % (kStep / alignments[operand] / 4));
        samples[1].addresses.push_back(base + rising + random() % (kStep / kPage) * kPage);
        samples[2].addresses.push_back(base + falling + alignments[operand] * odd);
    }
}

}  // namespace detail

// What is to be launched: a function, and the addresses it runs on now. `alignments` in bytes are
// what each address is to be proven for; a record must not be used with less.
struct Recordable {
    LaunchFunction launch;
    void* what;
    void* context;
    void* stream;
    void* const* addresses;
    const uint64_t* alignments;
    size_t count;
};

// Captures the launch three times and learns from it; hands the first capture and the patches to
// `use`, while the captured graphs live. Returns why it cannot be recorded, or what `use` returns.
template <typename Use>
Reason learn_launch(const GraphDriver& driver, const Recordable& work, Use use) {
    detail::PrivateStream capturing(driver, work.stream);
    if (capturing.status()) return failed("creating a stream", capturing.status());
    Sample samples[3];
    detail::choose_addresses(work.addresses, work.alignments, work.count, samples);
    detail::CapturedGraph graphs[] = {detail::CapturedGraph(driver), detail::CapturedGraph(driver),
                                      detail::CapturedGraph(driver)};
    for (int index = 0; index < 3; ++index) {
        Reason reason =
            graphs[index].capture(work.launch, work.what, capturing.get(), samples[index]);
        if (!reason.empty()) return reason;
    }
    if (samples[0].launch.nodes.empty()) return "it launches nothing";
    std::vector<Patch> patches;
    Reason reason = find_patches(samples[0], samples[1], samples[2], patches);
    return reason.empty() ? use(samples[0], patches) : reason;
}

// Makes a record of a launch, or says why not.
inline Reason record_launch(const GraphDriver& driver, const Recordable& work,
                            std::unique_ptr<LaunchRecord>& record) {
    return learn_launch(driver, work, [&](const Sample& sample, const std::vector<Patch>& patches) {
        return LaunchRecord::build(driver, work.context, sample, patches, work.stream, record);
    });
}

}  // namespace cudnn_bindgen
