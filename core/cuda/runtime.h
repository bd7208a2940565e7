// CUDA's runtime as objects: checked calls, devices, streams, events.
#pragma once
#include <cuda_runtime.h>

#include <mutex>
#include <new>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>

#include "espalier/core/device.h"

namespace espalier::cu {

/// Throws unless `status` is success: OutOfMemory where memory is what lacks, else DeviceError. `what` names
/// the call.
void check(cudaError_t status, std::string_view what);
/// "cudaErrorNoDevice: no CUDA-capable device is detected"
std::string describe(cudaError_t status);

/// The number of the device that is current in this thread.
int current_device();

/// Devices beyond this number cannot be used.
inline constexpr int most_devices = 64;

/// Makes a device the current one of this thread while it lives. The device before becomes the current one
/// again only if the process uses it: choosing a device makes its context, hundreds of megabytes.
class DeviceScope {
 public:
  explicit DeviceScope(int index);
  /// For destructors: errors are ignored.
  DeviceScope(int index, std::nothrow_t) noexcept;
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;

 private:
  int before_ = 0, index_;
};

/// Waits for all work of the current device. Work that another thread captures there must not be disturbed:
/// waits for the end of such captures first.
cudaError_t synchronize_device();

/// A capture in a stream of the current device, which must end before this does. No thread calls
/// `synchronize_device` meanwhile.
class CaptureScope {
 public:
  CaptureScope();
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

 private:
  std::shared_lock<std::shared_mutex> lock_;
};

/// For calls of libraries that synchronize the current device: waits for the end of captures of other
/// threads, and none begins before this ends. Nothing in it calls `synchronize_device`.
class NoCaptureScope {
 public:
  NoCaptureScope();
  NoCaptureScope(const NoCaptureScope&) = delete;
  NoCaptureScope& operator=(const NoCaptureScope&) = delete;

 private:
  std::unique_lock<std::shared_mutex> lock_;
};

/// A moment in a stream.
class Event {
 public:
  /// `timed`: that `milliseconds_since` can be asked.
  explicit Event(bool timed = false);
  ~Event();
  Event(Event&& other) noexcept : event_(std::exchange(other.event_, nullptr)), device_(other.device_) {}
  Event& operator=(Event&& other) noexcept {
    std::swap(event_, other.event_);
    std::swap(device_, other.device_);
    return *this;
  }

  void record(cudaStream_t stream);
  /// Waits on the host.
  void synchronize() const;
  float milliseconds_since(const Event& earlier) const;
  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
  int device_;
};

/// A non-blocking stream of the device that is current when it is made.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(Stream&& other) noexcept : stream_(std::exchange(other.stream_, nullptr)), device_(other.device_) {}
  Stream& operator=(Stream&& other) noexcept {
    std::swap(stream_, other.stream_);
    std::swap(device_, other.device_);
    return *this;
  }

  /// What comes next in it waits for the event.
  void wait(const Event& event);
  void synchronize() const;
  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
  int device_;
};

/// The current device's own stream, on which all threads evaluate eagerly. It is never captured.
cudaStream_t eager_stream();
/// The stream in which this thread's kernels run on the current device: that of the innermost StreamScope on
/// it, or the eager stream.
cudaStream_t current_stream();
/// The stream of this thread's innermost StreamScope, if that is one on `device`, else null. Makes no call
/// to the driver.
cudaStream_t stream_instead_of_eager(int device) noexcept;

/// Lets this thread's kernels on the current device run in another of its streams while it lives. Nothing
/// orders the two streams: code that uses tensors that the eager stream may still be writing waits for it
/// first, and the other way round.
class StreamScope {
 public:
  explicit StreamScope(cudaStream_t stream);
  ~StreamScope();
  StreamScope(const StreamScope&) = delete;
  StreamScope& operator=(const StreamScope&) = delete;

 private:
  cudaStream_t before_;
  int device_before_;
};

/// What kernels need to know of the current device; asked once.
struct DeviceLimits {
  int multiprocessors;
  int architecture;  ///< 90 for compute capability 9.0
};
const DeviceLimits& limits();

}  // namespace espalier::cu
