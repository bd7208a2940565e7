// Launching kernels, and grid-stride loops.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "espalier/core/cuda/runtime.h"

namespace espalier::cu {

/// The shape of a launch.
struct Grid {
  dim3 blocks, threads;
  size_t shared = 0;  ///< bytes of dynamic shared memory
};

inline constexpr int threads_in_block = 256;

/// Blocks of `threads_in_block` threads: enough that each thread has `each` of n elements, and at most as
/// many as keep the device busy, since kernels stride by `grid_threads()`.
inline Grid grid_for(int64_t n, int64_t each = 1) {
  const int64_t block = threads_in_block * each;
  const int64_t most = int64_t{limits().multiprocessors} * 32;
  return {dim3(static_cast<unsigned>(std::clamp<int64_t>((n + block - 1) / block, 1, most))),
          dim3(threads_in_block)};
}

/// Runs a kernel in the current stream.
template <class... P, class... A>
void launch(void (*kernel)(P...), const Grid& grid, A&&... arguments) {
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared;
  config.stream = current_stream();
  check(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...), "a kernel's launch");
}

#if defined(__CUDACC__) || defined(ESPALIER_EMULATED_CUDA)
/// This thread's number in the grid, and the number of threads, in one dimension.
__device__ __forceinline__ int64_t grid_thread() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ __forceinline__ int64_t grid_threads() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

/// The block's dynamic shared memory.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
#ifdef ESPALIER_EMULATED_CUDA
  return static_cast<T*>(espalier_emulated_shared());
#else
  extern __shared__ __align__(16) unsigned char espalier_shared[];
  return reinterpret_cast<T*>(espalier_shared);
#endif
}
#endif

}  // namespace espalier::cu
