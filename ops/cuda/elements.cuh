// Helpers of kernels that reduce elements: the types they compute in, vectorized reads, reductions over lanes
// and blocks, and addressing of strided elements.
#pragma once
#include <bit>
#include <cstdint>
#include <type_traits>

#include "espalier/core/cuda/launch.h"
#include "espalier/core/error.h"
#include "espalier/core/scalar.h"
#include "espalier/core/tensor.h"

namespace espalier::cu {

/// Calls `f(TypeTag<T>{})` with the element type of a dtype.
template <class F>
void visit_elements(DType dtype, F&& f) {
  visit_all(dtype, f);
}

template <class T>
inline constexpr bool is_real_element = !std::is_integral_v<T>;
/// The type to compute in for elements of type T: float for 16-bit types.
template <class T>
using Computed = std::conditional_t<sizeof(T) == 2, float, T>;

/// V adjacent elements, read or written at once.
template <class T, int V>
struct alignas(sizeof(T) * V) Several {
  T at[V];
};
/// The number of elements in 16 bytes.
template <class T>
inline constexpr int vector_width = 16 / sizeof(T);
/// Returns true if contiguous rows of `n` elements at `address` can be read in whole vectors.
template <class T>
bool in_vectors(const void* address, int64_t n) {
  return n % vector_width<T> == 0 && reinterpret_cast<uintptr_t>(address) % 16 == 0;
}

/// The smallest power of two that is at least n.
inline int64_t power_from(int64_t n) {
  return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n < 1 ? 1 : n)));
}
inline int64_t divide_up(int64_t n, int64_t by) { return (n + by - 1) / by; }

/// The sizes and strides of a layout, the innermost axis first.
struct StridedWalk {
  static constexpr int most_axes = 12;
  int axes = 1;
  int64_t size[most_axes] = {1}, step[most_axes] = {0};

  StridedWalk() = default;
  explicit StridedWalk(const Layout& layout) {
    const size_t rank = layout.shape.rank();
    if (rank > most_axes)
      throw UnsupportedError("a GPU reduces at most " + std::to_string(most_axes) +
                             " axes that lie apart, and keeps as many; shape " + layout.shape.str());
    for (size_t i = 0; i < rank; ++i) {
      size[i] = layout.shape.dims()[rank - 1 - i];
      step[i] = layout.strides[rank - 1 - i];
    }
    if (rank) axes = static_cast<int>(rank);
  }

#if defined(__CUDACC__) || defined(ESPALIER_EMULATED_CUDA)
  /// The offset of an element, by its row-major index.
  __device__ __forceinline__ int64_t offset(int64_t number) const;
#endif
};

#if defined(__CUDACC__) || defined(ESPALIER_EMULATED_CUDA)

/// a / b for non-negative numbers, in 32 bits where they fit.
__device__ __forceinline__ int64_t divide(int64_t a, int64_t b) {
  if (((a | b) >> 32) == 0) return static_cast<uint32_t>(a) / static_cast<uint32_t>(b);
  return a / b;
}

__device__ __forceinline__ int64_t StridedWalk::offset(int64_t number) const {
  int64_t at = 0;
  for (int a = 0; a + 1 < axes; ++a) {
    const int64_t outer = divide(number, size[a]);
    at += (number - outer * size[a]) * step[a];
    number = outer;
  }
  return at + number * step[axes - 1];
}

/// Reduces over `lanes` adjacent lanes (a power of two); all of them get the result. All lanes of the warp
/// must call it.
template <class F, class T>
__device__ __forceinline__ T fold_lanes(T x, int lanes, F f) {
  for (int k = lanes / 2; k > 0; k /= 2) x = f(x, __shfl_xor_sync(0xffffffffu, x, k));
  return x;
}

/// Reduces over all threads of the block; all of them get the result.
template <class F, class T>
__device__ __forceinline__ T fold_block(T x, F f) {
  __shared__ T parts[32];
  x = fold_lanes(x, 32, f);
  __syncthreads();  // all threads have read `parts` of the previous call
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
  __syncthreads();
  x = parts[0];
  for (unsigned w = 1; w < blockDim.x / 32; ++w) x = f(x, parts[w]);
  return x;
}

#endif

}  // namespace espalier::cu
