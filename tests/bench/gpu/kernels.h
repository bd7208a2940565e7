// The two kernels that benchmarks bring along.
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

/// Keeps the whole device busy from `close` to `open`, so that all that is asked of it meanwhile waits in a
/// queue; for two seconds at most.
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
