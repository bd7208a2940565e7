#include "espalier/core/cuda/runtime.h"

#include <cuda.h>
#include <fmt/format.h>

#include <atomic>
#include <mutex>

#include "espalier/core/error.h"

namespace espalier::cu {

namespace {

/// A thread's current stream in place of the eager one, and its device.
struct Override {
  cudaStream_t stream = nullptr;
  int device = -1;
};
thread_local Override stream_override;

/// The state of each device; created on first use and never destroyed, since static tensors outlive main.
struct PerDevice {
  std::once_flag stream_once, limits_once;
  std::atomic<cudaStream_t> stream{nullptr};
  std::atomic<bool> limits_known{false};
  DeviceLimits limits{};
  std::shared_mutex captures;  // held by captures, which are many, or by one thread that synchronizes
};
PerDevice& per_device() {
  static PerDevice* const table = new PerDevice[most_devices];
  return table[current_device()];
}
thread_local bool captures = false;  // this thread

/// Whether a device's primary context exists; asking makes none.
bool has_context(int device) {
  using State = CUresult(CUDAAPI*)(CUdevice, unsigned int*, int*);
  static const State state = [] {
    constexpr unsigned int since = 7000;  // CUDA 7.0
    void* function = nullptr;
    cudaDriverEntryPointQueryResult result{};
    const cudaError_t status = cudaGetDriverEntryPointByVersion("cuDevicePrimaryCtxGetState", &function,
                                                                since, cudaEnableDefault, &result);
    if (status != cudaSuccess) (void)cudaGetLastError();
    return status == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<State>(function)
                                                                          : nullptr;
  }();
  unsigned int flags = 0;
  int active = 0;
  return !state || state(device, &flags, &active) != CUDA_SUCCESS || active != 0;
}

int attribute(cudaDeviceAttr which, int device) {
  int value = 0;
  check(cudaDeviceGetAttribute(&value, which, device), "asking a device for its properties");
  return value;
}

}  // namespace

std::string describe(cudaError_t status) {
  return fmt::format("{}: {}", cudaGetErrorName(status), cudaGetErrorString(status));
}

void check(cudaError_t status, std::string_view what) {
  if (status == cudaSuccess) return;
  (void)cudaGetLastError();  // what is reported here is not reported again
  const std::string message = fmt::format("{} failed ({})", what, describe(status));
  if (status == cudaErrorMemoryAllocation) throw OutOfMemory(message);
  throw DeviceError(message);
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current device");
  if (device >= most_devices)
    throw DeviceError(fmt::format("cuda:{} cannot be used: Espalier knows {} devices", device, most_devices));
  return device;
}

DeviceScope::DeviceScope(int index) : before_(current_device()), index_(index) {
  if (before_ != index_) check(cudaSetDevice(index_), "choosing a device");
}

DeviceScope::DeviceScope(int index, std::nothrow_t) noexcept : before_(index), index_(index) {
  (void)cudaGetDevice(&before_);
  if (before_ != index_) (void)cudaSetDevice(index_);
}

DeviceScope::~DeviceScope() {
  if (before_ != index_ && has_context(before_)) (void)cudaSetDevice(before_);
}

cudaError_t synchronize_device() {
  const NoCaptureScope alone;
  return cudaDeviceSynchronize();
}

NoCaptureScope::NoCaptureScope() {
  if (!captures)
    lock_ = std::unique_lock(per_device().captures);  // in a capture of its own such calls are refused
}

CaptureScope::CaptureScope() : lock_(per_device().captures) { captures = true; }
CaptureScope::~CaptureScope() { captures = false; }

Event::Event(bool timed) : device_(current_device()) {
  check(cudaEventCreateWithFlags(&event_, timed ? cudaEventDefault : cudaEventDisableTiming),
        "making an event");
}

Event::~Event() {
  if (!event_) return;
  const DeviceScope device(device_, std::nothrow);
  (void)cudaEventDestroy(event_);
}

void Event::record(cudaStream_t stream) { check(cudaEventRecord(event_, stream), "recording an event"); }

void Event::synchronize() const {
  const DeviceScope device(device_);
  check(cudaEventSynchronize(event_), "waiting for an event");
}

float Event::milliseconds_since(const Event& earlier) const {
  const DeviceScope device(device_);
  float milliseconds = 0;
  check(cudaEventElapsedTime(&milliseconds, earlier.event_, event_), "measuring the time between events");
  return milliseconds;
}

Stream::Stream() : device_(current_device()) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}

Stream::~Stream() {
  if (!stream_) return;
  const DeviceScope device(device_, std::nothrow);
  (void)cudaStreamDestroy(stream_);
}

void Stream::wait(const Event& event) {
  check(cudaStreamWaitEvent(stream_, event.get(), 0), "letting a stream wait for an event");
}

void Stream::synchronize() const {
  const DeviceScope device(device_);
  check(cudaStreamSynchronize(stream_), "waiting for a stream");
}

cudaStream_t eager_stream() {
  PerDevice& own = per_device();
  if (cudaStream_t stream = own.stream.load(std::memory_order_acquire)) return stream;
  std::call_once(own.stream_once, [&] {
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "making a stream");
    own.stream.store(stream, std::memory_order_release);
  });
  return own.stream.load(std::memory_order_acquire);
}

cudaStream_t current_stream() {
  const cudaStream_t other = stream_override.stream ? stream_instead_of_eager(current_device()) : nullptr;
  return other ? other : eager_stream();
}

cudaStream_t stream_instead_of_eager(int device) noexcept {
  return stream_override.device == device ? stream_override.stream : nullptr;
}

StreamScope::StreamScope(cudaStream_t stream)
    : before_(stream_override.stream), device_before_(stream_override.device) {
  stream_override = {stream, current_device()};
}

StreamScope::~StreamScope() { stream_override = {before_, device_before_}; }

const DeviceLimits& limits() {
  PerDevice& own = per_device();
  if (!own.limits_known.load(std::memory_order_acquire))
    std::call_once(own.limits_once, [&] {
      const int device = current_device();
      own.limits.multiprocessors = attribute(cudaDevAttrMultiProcessorCount, device);
      own.limits.architecture = attribute(cudaDevAttrComputeCapabilityMajor, device) * 10 +
                                attribute(cudaDevAttrComputeCapabilityMinor, device);
      own.limits_known.store(true, std::memory_order_release);
    });
  return own.limits;
}

}  // namespace espalier::cu
