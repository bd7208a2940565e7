// Launching kernels whose blocks all run at once and wait for each other.
#pragma once
#include "espalier/core/cuda/launch.h"

namespace espalier::cu {

/// How many blocks of a kernel the current device runs at once, with `shared` bytes of dynamic shared memory
/// each; 0 if the device has less. From now on the kernel may have all that the device has.
template <class... P>
int resident_blocks(void (*kernel)(P...), int threads, size_t shared) {
  int most = 0, blocks = 0;
  check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, current_device()),
        "cudaDeviceGetAttribute");
  if (shared > static_cast<size_t>(most)) return 0;
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
        "cudaFuncSetAttribute");
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, threads, shared),
        "cudaOccupancyMaxActiveBlocksPerMultiprocessor");
  return blocks * limits().multiprocessors;
}

/// Runs a kernel in the current stream, of at most as many blocks as `resident_blocks` says.
template <class... P, class... A>
void launch_cooperative(void (*kernel)(P...), const Grid& grid, A&&... arguments) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeCooperative;
  attribute.val.cooperative = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = grid.threads;
  config.dynamicSmemBytes = grid.shared;
  config.stream = current_stream();
  config.attrs = &attribute;
  config.numAttrs = 1;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<P>(arguments)...), "a kernel's cooperative launch");
}

#if defined(__CUDACC__) || defined(ESPALIER_EMULATED_CUDA)
/// Some blocks of a cooperative launch wait for each other, as often as they like. All threads of them call
/// it. What a block has written before it arrives, others read behind `wait`, if not from their L1 caches.
class BlockBarrier {
 public:
  /// `arrived` is 0 at the launch.
  __device__ BlockBarrier(unsigned* arrived, unsigned blocks) : arrived_(arrived), blocks_(blocks) {}

  __device__ void arrive() {
    awaited_ += blocks_;
    __syncthreads();
    if (threadIdx.x == 0) add_one();
  }
  __device__ void wait() {
    if (threadIdx.x == 0)
      while (static_cast<int>(arrived() - awaited_) < 0) continue;
    __syncthreads();
  }

 private:
  /// Releases what the threads of the block have written: PTX ISA, 8.
  __device__ void add_one() {
#ifdef ESPALIER_EMULATED_CUDA
    atomicAdd(arrived_, 1u);
#else
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(arrived_) : "memory");
#endif
  }
  __device__ unsigned arrived() const {
#ifdef ESPALIER_EMULATED_CUDA
    __nanosleep(0);  // blocks run in turn
    return *arrived_;
#else
    unsigned count;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(count) : "l"(arrived_) : "memory");
    return count;
#endif
  }

  unsigned* arrived_;
  unsigned blocks_, awaited_ = 0;
};
#endif

}  // namespace espalier::cu
