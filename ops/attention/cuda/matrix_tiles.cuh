// Tiles of matrices of 16-bit elements for tensor cores: the rows that a warp has in its registers, tiles of
// rows in shared memory, and their products.
#pragma once
#include "espalier/ops/cuda/async_copy.cuh"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/matrix_unit.cuh"

namespace espalier::cu {

inline constexpr int matrix_threads = 128, matrix_warps = matrix_threads / 32;

/// N rows of at most W columns in shared memory. Rows are a vector longer, so that eight of them start in
/// different banks.
template <class T, int N, int W>
struct RowTile {
  alignas(16) T at[N][W + 8];
};

/// Begins to copy rows from `first` on; what is beyond the ends is 0. All threads of the block call it, and
/// later await_copies and a barrier.
template <class T, int N, int W>
__device__ __forceinline__ void copy_rows(RowTile<T, N, W>& to, const T* from, int64_t first, int64_t rows,
                                          int64_t width) {
  constexpr int vector = vector_width<T>, vectors = W / vector, step = matrix_threads / vectors;
  static_assert(N % step == 0);
  const int column = static_cast<int>(threadIdx.x) % vectors * vector;
  const int row = static_cast<int>(threadIdx.x) / vectors;
  const int there = static_cast<int>(min(rows - first, int64_t{N}));
  const T* at = from + (first + row) * width + column;
  if (width % vector == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0) {
#pragma unroll
    for (int i = 0; i < N; i += step, at += step * width) {
      const bool inside = row + i < there && column < width;
      copy_async<16>(&to.at[row + i][column], inside ? at : from, inside);
    }
    return;
  }
#pragma unroll 1
  for (int i = 0; i < N; i += step, at += step * width)
    for (int k = 0; k < vector; ++k)
      to.at[row + i][column + k] = row + i < there && column + k < width ? at[k] : T(0.0f);
}

/// The left operands of `sets` times 16 rows of a warp.
template <int sets, int W>
struct LeftRows {
  uint32_t at[sets][W / 16][4];
};

/// Reads rows from `first` on; what is beyond the ends is 0. Elements are negated if `negated`.
template <int sets, int W, class T>
__device__ __forceinline__ void load_left(LeftRows<sets, W>& to, const T* from, int64_t first, int64_t rows,
                                          int64_t width, bool negated = false) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool pairs = width % 2 == 0 && reinterpret_cast<uintptr_t>(from) % 4 == 0;
  const uint32_t signs = negated ? 0x80008000u : 0u;
#pragma unroll
  for (int s = 0; s < sets; ++s)
#pragma unroll
    for (int k = 0; k < W / 16; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = first + 16 * s + lane / 4 + i % 2 * 8;
        const int column = 16 * k + lane % 4 * 2 + i / 2 * 8;
        const T* at = from + row * width + column;
        uint32_t both = 0;
        if (row < rows && column < width) {
          if (pairs) {
            both = *reinterpret_cast<const uint32_t*>(at);
          } else {
            both = at[0].bits;
            if (column + 1 < width) both |= uint32_t{at[1].bits} << 16;
          }
        }
        to.at[s][k][i] = both ^ signs;
      }
}

/// Sums of `sets` times 16 rows and N columns of a warp.
template <int sets, int N>
struct RowSums {
  float at[sets][N / 8][4];
};
template <int sets, int N>
__device__ __forceinline__ void clear_sums(RowSums<sets, N>& sums) {
#pragma unroll
  for (int s = 0; s < sets; ++s)
#pragma unroll
    for (int n = 0; n < N / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) sums.at[s][n][i] = 0;
}

/// Calls f(element, row, column) for the elements of a warp's sums, with their places.
template <int sets, int N, class F>
__device__ __forceinline__ void each_sum(RowSums<sets, N>& sums, F&& f) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int s = 0; s < sets; ++s)
#pragma unroll
    for (int n = 0; n < N / 8; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        f(sums.at[s][n][i], 16 * s + lane / 4 + i / 2 * 8, 8 * n + lane % 4 * 2 + i % 2);
}

/// sums = left · tileᵀ, for the rows of the tile from `first` on.
template <int sets, int N, int W, class T, int rows>
__device__ __forceinline__ void multiply_transposed(RowSums<sets, N>& sums, const LeftRows<sets, W>& left,
                                                    const RowTile<T, rows, W>& tile, int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const T* from = &tile.at[first + lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8];
  clear_sums(sums);
#pragma unroll
  for (int k = 0; k < W / 16; ++k)
#pragma unroll
    for (int n = 0; n < N / 16; ++n) {
      uint32_t right[4];
      load_matrices<false>(right, from + 16 * n * (W + 8) + 16 * k);
#pragma unroll
      for (int s = 0; s < sets; ++s) {
        multiply_add<T>(sums.at[s][2 * n], left.at[s][k], right[0], right[1]);
        multiply_add<T>(sums.at[s][2 * n + 1], left.at[s][k], right[2], right[3]);
      }
    }
}

/// sums += values · tile, where the values, rounded, are N columns for the rows of the tile from `first` on.
template <int sets, int N, int W, class T, int rows>
__device__ __forceinline__ void add_product(RowSums<sets, W>& sums, const RowSums<sets, N>& values,
                                            const RowTile<T, rows, W>& tile, int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const T* from = &tile.at[first + lane % 16][lane / 16 * 8];
#pragma unroll
  for (int k = 0; k < N / 16; ++k) {
    uint32_t left[sets][4];
#pragma unroll
    for (int s = 0; s < sets; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i)
        left[s][i] =
            pack<T>(values.at[s][2 * k + i / 2][i % 2 * 2], values.at[s][2 * k + i / 2][i % 2 * 2 + 1]);
#pragma unroll
    for (int n = 0; n < W / 16; ++n) {
      uint32_t right[4];
      load_matrices<true>(right, from + 16 * k * (W + 8) + 16 * n);
#pragma unroll
      for (int s = 0; s < sets; ++s) {
        multiply_add<T>(sums.at[s][2 * n], left[s], right[0], right[1]);
        multiply_add<T>(sums.at[s][2 * n + 1], left[s], right[2], right[3]);
      }
    }
  }
}

/// Writes the sums, times `factor(set, lower)` for a lane's rows, to rows from `first` on.
template <int sets, int W, class T, class F>
__device__ __forceinline__ void store_rows(T* to, const RowSums<sets, W>& sums, int64_t first, int64_t rows,
                                           int64_t width, F&& factor) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool pairs = width % 2 == 0 && reinterpret_cast<uintptr_t>(to) % 4 == 0;
#pragma unroll
  for (int s = 0; s < sets; ++s)
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      const int64_t row = first + 16 * s + lane / 4 + 8 * lower;
      if (row >= rows) continue;
      const float times = factor(s, lower);
#pragma unroll
      for (int n = 0; n < W / 8; ++n) {
        const int column = 8 * n + lane % 4 * 2;
        if (column >= width) continue;
        T* at = to + row * width + column;
        const float low = sums.at[s][n][2 * lower] * times, high = sums.at[s][n][2 * lower + 1] * times;
        if (pairs) {
          *reinterpret_cast<uint32_t*>(at) = pack<T>(low, high);
        } else {
          at[0] = static_cast<T>(low);
          if (column + 1 < width) at[1] = static_cast<T>(high);
        }
      }
    }
}

}  // namespace espalier::cu
