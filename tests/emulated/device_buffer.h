// Helpers of the emulator's tests.
#pragma once
#include <boost/test/unit_test.hpp>
#include <vector>

#include "cuda_runtime.h"
#include "emulated_cuda.h"

/// An array in the memory of the current device.
template <class T>
class DeviceBuffer {
 public:
  explicit DeviceBuffer(size_t size) : size_(size) {
    BOOST_REQUIRE_EQUAL(cudaMalloc(&data_, size * sizeof(T)), 0);
  }
  explicit DeviceBuffer(const std::vector<T>& values) : DeviceBuffer(values.size()) {
    BOOST_REQUIRE_EQUAL(cudaMemcpy(data_, values.data(), size_ * sizeof(T), cudaMemcpyHostToDevice), 0);
    BOOST_REQUIRE_EQUAL(cudaDeviceSynchronize(), 0);
  }
  ~DeviceBuffer() { cudaFree(data_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  T* data() const { return data_; }
  /// The current values on the device; waits only for work on the legacy stream.
  std::vector<T> now() const {
    std::vector<T> values(size_);
    BOOST_REQUIRE_EQUAL(cudaMemcpy(values.data(), data_, size_ * sizeof(T), cudaMemcpyDeviceToHost), 0);
    return values;
  }
  /// The values after a synchronization of the device.
  std::vector<T> values() const {
    BOOST_REQUIRE_EQUAL(cudaDeviceSynchronize(), 0);
    return now();
  }

 private:
  T* data_ = nullptr;
  size_t size_;
};

/// A non-blocking stream.
class Stream {
 public:
  Stream() { BOOST_REQUIRE_EQUAL(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), 0); }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { BOOST_REQUIRE_EQUAL(cudaEventCreateWithFlags(&event_, 0), 0); }
  ~Event() { cudaEventDestroy(event_); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

template <class... P, class... A>
cudaError_t run(void (*kernel)(P...), dim3 grid, dim3 block, cudaStream_t stream, size_t shared,
                A... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/// A launch whose blocks may wait for each other.
template <class... P, class... A>
cudaError_t run_cooperative(void (*kernel)(P...), dim3 grid, dim3 block, size_t shared, A... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = block;
  config.dynamicSmemBytes = shared;
  config.attrs = &attribute;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, arguments...);
}

/// A fixture that resets the devices.
struct Fresh {
  Fresh() { emulated::reset(); }
  ~Fresh() { emulated::reset(); }
};
