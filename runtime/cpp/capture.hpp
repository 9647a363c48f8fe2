// Creating and destroying things while a stream is being captured on this or another thread.
//
// CUDA forbids such calls to a thread whose capture mode is stricter than relaxed while a capture
// goes on (CUDA Runtime API, cudaStreamBeginCapture), and the capture is lost with the call. What
// this project creates and destroys never depends on captured work: it uses relaxed mode.
#pragma once

#include "driver.hpp"

namespace cudnn_bindgen {

// What a stream does when a call comes.
enum : int {
    kNotCapturing = 0,
    kCapturing = 1  // also the legacy stream, if it would join another one's capture
};

// Asks what `stream` does: one of the above, or -CUresult for what is no stream. Costs 0.1 to
// 0.2 us (H200).
inline int capture_state(const DriverApi* driver, void* stream) {
    int capturing = kNoCapture;
    const int status = driver->stream_is_capturing(stream, &capturing);
    if (!status) return capturing == kNoCapture ? kNotCapturing : kCapturing;
    return status == kCaptureImplicit ? kCapturing : -status;
}

enum : int { kUnknownMode = -1 };

// Sets this thread's capture mode to relaxed; returns the one it had, for `restore_capture`.
inline int relax_capture(const DriverApi* driver) {
    int mode = kRelaxedCapture;
    return driver->exchange_capture_mode(&mode) ? kUnknownMode : mode;
}

inline void restore_capture(const DriverApi* driver, int mode) {
    if (mode != kUnknownMode) driver->exchange_capture_mode(&mode);
}

// While alive, this thread may create and destroy things although a capture goes on somewhere.
class RelaxedCapture {
  public:
    explicit RelaxedCapture(const DriverApi& driver)
        : driver_(driver), before_(relax_capture(&driver)) {}
    ~RelaxedCapture() { restore_capture(&driver_, before_); }
    RelaxedCapture(const RelaxedCapture&) = delete;
    RelaxedCapture& operator=(const RelaxedCapture&) = delete;

  private:
    const DriverApi& driver_;
    const int before_;
};

// Makes `context` current to destroy what is in it; returns what was, for `leave_context`.
inline void* enter_context(const DriverApi* driver, void* context) {
    // Where that cannot be asked the thread keeps what it has: destroying works without.
    void* before = context;
    driver->context_get_current(&before);
    if (before != context) driver->context_set_current(context);
    return before;
}

inline void leave_context(const DriverApi* driver, void* context, void* before) {
    if (before != context) driver->context_set_current(before);
}

}  // namespace cudnn_bindgen
