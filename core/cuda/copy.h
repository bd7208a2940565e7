// Copying between tensors of one device, whatever their strides.
#pragma once
#include <cuda_runtime.h>

#include "espalier/core/tensor.h"

namespace espalier::cu {

/// Copies all elements of `from` to `to`, of the same shape and dtype and on the current device, in the
/// current stream.
void copy_strided(const Tensor& from, Tensor& to);

/// What `put_bytes` can write.
inline constexpr size_t most_bytes_put = 16;
/// Writes a few bytes of the host in the current stream. They travel with the launch: nothing waits for them.
void put_bytes(void* to, const void* from, size_t bytes);

/// The lowest architecture that this build's kernels are compiled for: 90 for compute capability 9.0.
int lowest_architecture();
/// Success if the current device can run this build's kernels.
cudaError_t try_kernels();

}  // namespace espalier::cu
