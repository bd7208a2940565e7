// CUDA's runtime as objects: checked calls, devices, streams, events.
#pragma once
#include <cuda_runtime.h>

#include <string_view>
#include <utility>

#include "espalier/core/device.h"

namespace espalier::cu {

/// Throws unless `status` is success: OutOfMemory where memory is what lacks, else DeviceError. `what` names
/// the call.
void check(cudaError_t status, std::string_view what);

/// Makes a device the current one of this thread while it lives.
class DeviceScope {
 public:
  explicit DeviceScope(int index);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0, index_;
};

/// A moment in a stream.
class Event {
 public:
  /// `timed`: that `milliseconds_since` can be asked.
  explicit Event(bool timed = false);
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }

  void record(cudaStream_t stream);
  /// Waits on the host.
  void synchronize() const;
  float milliseconds_since(const Event& earlier) const;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// A non-blocking stream of the device that is current when it is made.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }

  /// What comes next in it waits for the event.
  void wait(const Event& event);
  void synchronize() const;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// The stream in which this thread's kernels run on the current device: that of the innermost StreamScope, or
/// the device's own, on which eager evaluation runs.
cudaStream_t current_stream();

/// Lets this thread's kernels run in another stream while it lives.
class StreamScope {
 public:
  explicit StreamScope(cudaStream_t stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  cudaStream_t before_;
};

/// What kernels need to know of the current device.
struct DeviceLimits {
  int multiprocessors;
  int architecture;  ///< 90 for compute capability 9.0
};
const DeviceLimits& limits();

}  // namespace espalier::cu
