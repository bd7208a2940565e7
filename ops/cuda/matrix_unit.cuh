// Products of small matrices by a warp's tensor cores, of 16-bit elements or in TF32, with sums in float: the
// instructions ldmatrix, mma.m16n8k16 and mma.m16n8k8 of the PTX ISA, 9.7.14.5. They need compute capability
// 8.0.
//
// With g = lane / 4 and t = lane % 4, a lane holds of
//   a left operand [16, 16]:  rows g, g + 8, g, g + 8 and columns 2t, 2t, 2t + 8, 2t + 8, and the column
//                             after each
//   a right operand [16, 8]:  rows 2t and 2t + 8, and the row after each, of column g
//   the sums [16, 8]:         rows g, g, g + 8, g + 8 and columns 2t, 2t + 1, 2t, 2t + 1
// In TF32, with one element in a register:
//   a left operand [16, 8]:   rows g, g + 8, g, g + 8 and columns t, t, t + 4, t + 4
//   a right operand [8, 8]:   rows t and t + 4 of column g
#pragma once
#include <cstdint>
#include <type_traits>

#include "espalier/core/half.h"

namespace espalier::cu {

inline constexpr int least_capability_of_matrix_unit = 80;

/// Two elements: `low` is that of the lesser column, or row of a right operand.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high) {
  const T pair[2] = {static_cast<T>(low), static_cast<T>(high)};
  uint32_t bits;
  __builtin_memcpy(&bits, pair, sizeof bits);
  return bits;
}

/// Four matrices of 8 × 8 elements of 16 bits, or what they are transposed, from shared memory: lanes 8i to
/// 8i + 7 name the rows of matrix i, of 16 bytes each, which are aligned. All lanes of the warp call it.
template <bool transposed, class T>
__device__ __forceinline__ void load_matrices(uint32_t (&to)[4], const T* row) {
#ifdef ESPALIER_EMULATED_CUDA
  emulated::load_matrices(to, row, transposed);
#else
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (transposed)
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
  else
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(address)
                 : "memory");
#endif
}

/// The bits of the nearest number in TF32.
__device__ __forceinline__ uint32_t to_tf32(float x) {
#ifdef ESPALIER_EMULATED_CUDA
  return emulated::to_tf32(x);
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  uint32_t bits;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
  return bits;
#else
  return __float_as_uint(x);
#endif
}

/// sums += a · b, of T; float is TF32. All lanes of the warp call it.
template <class T>
__device__ __forceinline__ void multiply_add(float (&sums)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1) {
#ifdef ESPALIER_EMULATED_CUDA
  if constexpr (sizeof(T) == 4)
    emulated::multiply_add_tf32(sums, a, b0, b1);
  else
    emulated::multiply_add(sums, a, b0, b1, [](uint16_t bits) {
      T x;
      __builtin_memcpy(&x, &bits, sizeof x);
      return static_cast<float>(x);
    });
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  if constexpr (sizeof(T) == 4)
    asm volatile(
        "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else if constexpr (std::is_same_v<T, BFloat16>)
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  else
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#else
  __trap();
#endif
}

}  // namespace espalier::cu
