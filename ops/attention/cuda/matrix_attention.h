// Attention by tensor cores, of 16-bit elements or of floats in TF32: Dao, "FlashAttention-2" (2023),
// algorithms 1 and 2.
//
// Each of the four warps of a block has the operands and the sums of 16 or 32 rows in its registers, and
// walks over tiles of rows of the other operands. Shared memory holds two of these: one is computed with
// while the other one is copied. Weights are rounded to the type of the operands before they are multiplied.
#pragma once
#include <algorithm>

#include "espalier/core/cuda/launch.h"
#include "espalier/ops/attention/cuda/device_attention.cuh"
#include "espalier/ops/cuda/matrix_unit.cuh"
#include "espalier/ops/matmul/matmul_precision.h"

namespace espalier::cu {

/// The greatest width of heads.
template <class T>
inline constexpr int64_t matrix_width = sizeof(T) == 2 ? 128 : 64;

/// Whether tensor cores compute this attention.
template <class T>
bool by_matrices(const DeviceAttention& a, MatmulPrecision precision) {
  if (sizeof(T) > 4 || (sizeof(T) == 4 && precision != MatmulPrecision::tf32)) return false;
  return std::max(a.width, a.value_width) <= matrix_width<T> &&
         limits().architecture >= least_capability_of_matrix_unit;
}

/// Launches them. T: Float16, BFloat16 and float.
template <class T>
void attend_by_matrices(const DeviceAttention& a, const T* q, const T* k, const T* v, T* out,
                        float* log_sums);
template <class T>
void attend_back_by_matrices(const DeviceAttention& a, const BackwardOperands<T, float>& o, T* dq, T* dk,
                             T* dv);

/// One block for each tile of rows (x), of each head (y), and for each of so many tiles of columns (z).
inline Grid tiles_grid(int64_t rows, int64_t heads, int tile, int threads, int64_t columns = 1) {
  const auto number = [](int64_t n, int64_t most) {
    return static_cast<unsigned>(std::max<int64_t>(1, std::min(n, most)));
  };
  return {dim3(number(divide_up(rows, tile), 1 << 30), number(heads, 1 << 15), number(columns, 1 << 15)),
          dim3(static_cast<unsigned>(threads))};
}

/// Calls f with the compile-time width that has room for the heads', and whether there are masks or dropout.
template <class T, class F>
void of_width(const DeviceAttention& a, F&& f) {
  const int64_t width = std::max(a.width, a.value_width);
  const bool masked = a.mask || a.key_mask || a.drops;
  if (width > 64) {
    if constexpr (matrix_width < T >> 64)
      masked ? f.template operator()<128, true>() : f.template operator()<128, false>();
  } else if (masked) {
    f.template operator()<64, true>();
  } else if (width > 32) {
    f.template operator()<64, false>();
  } else {
    f.template operator()<32, false>();
  }
}

}  // namespace espalier::cu
