// The kernels of the benchmarks.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

#include "device.h"

namespace bench {

/// A kernel that does nothing.
void launch_empty(cudaStream_t stream);
/// Normal numbers, different for each seed: products take longer on them than on zeros. T is float or
/// __nv_bfloat16, by its number of bytes.
void fill_random(const Memory& memory, int bytes_of_element, uint32_t seed, cudaStream_t stream);

/// Keeps the whole device busy from `close` to `open`, for two seconds at most, so that other work waits in
/// its queue.
class Gate {
 public:
  Gate();
  ~Gate();
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;
  void close();
  /// Throws if it was open already.
  void open();

 private:
  Stream stream_;
  volatile int* opened_ = nullptr;  // on the host, seen by the device
};

}  // namespace bench
