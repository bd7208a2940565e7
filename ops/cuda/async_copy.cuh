// Copies from global to shared memory that run beside computation: cp.async of the PTX ISA, 9.7.9.25.3. They
// need compute capability 8.0.
#pragma once
#include <cstdint>

namespace espalier::cu {

/// Begins to copy `bytes`, 4, 8 or 16, to which both addresses are aligned; zeros, if `there` is false, where
/// `from` is not read.
template <int bytes>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool there) {
  static_assert(bytes == 4 || bytes == 8 || bytes == 16);
#ifdef ESPALIER_EMULATED_CUDA
  emulated::copy_async(to, from, bytes, there ? bytes : 0);
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  const int size = there ? bytes : 0;
  if constexpr (bytes == 16)  // by the second cache alone
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(size)
                 : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(bytes),
                 "r"(size)
                 : "memory");
#else
  __trap();
#endif
}

/// Waits for all copies that this thread has begun. Other threads see them behind a barrier.
__device__ __forceinline__ void await_copies() {
#ifdef ESPALIER_EMULATED_CUDA
  emulated::await_copies();
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

}  // namespace espalier::cu
