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
  static constexpr int length = W + vector_width<T>;
  alignas(16) T at[N][length];
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

/// Columns of a matrix instruction: 32 bytes of the operands' rows.
template <class T>
inline constexpr int matrix_depth = 2 * vector_width<T>;

/// The left operands of `sets` times 16 rows of a warp.
template <class T, int sets, int W>
struct LeftRows {
  uint32_t at[sets][W / matrix_depth<T>][4];
};

/// Reads rows from `first` on; what is beyond the ends is 0. Elements are negated if `negated`.
template <class T, int sets, int W>
__device__ __forceinline__ void load_left(LeftRows<T, sets, W>& to, const T* from, int64_t first,
                                          int64_t rows, int64_t width, bool negated = false) {
  constexpr int each = 4 / sizeof(T);  // of a register
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const bool whole = width % each == 0 && reinterpret_cast<uintptr_t>(from) % 4 == 0;
  const uint32_t signs = !negated ? 0u : each == 2 ? 0x80008000u : 0x80000000u;
#pragma unroll
  for (int s = 0; s < sets; ++s)
#pragma unroll
    for (int k = 0; k < W / matrix_depth<T>; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t row = first + 16 * s + lane / 4 + i % 2 * 8;
        const int column = each * (8 * k + lane % 4 + i / 2 * 4);
        const T* at = from + row * width + column;
        uint32_t bits = 0;
        if (row < rows && column < width) {
          if constexpr (each == 1) {
            bits = to_tf32(*at);
          } else if (whole) {
            bits = *reinterpret_cast<const uint32_t*>(at);
          } else {
            bits = at[0].bits;
            if (column + 1 < width) bits |= uint32_t{at[1].bits} << 16;
          }
        }
        to.at[s][k][i] = bits ^ signs;
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
template <class T, int sets, int N, int W, int rows>
__device__ __forceinline__ void multiply_transposed(RowSums<sets, N>& sums, const LeftRows<T, sets, W>& left,
                                                    const RowTile<T, rows, W>& tile, int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const T* from = &tile.at[first + lane % 8 + lane / 16 * 8][lane / 8 % 2 * vector_width<T>];
  clear_sums(sums);
#pragma unroll
  for (int k = 0; k < W / matrix_depth<T>; ++k)
#pragma unroll
    for (int n = 0; n < N / 16; ++n) {
      uint32_t right[4];
      load_matrices<false>(right, from + 16 * n * tile.length + matrix_depth<T> * k);
      if constexpr (sizeof(T) == 4)
#pragma unroll
        for (uint32_t& bits : right) bits = to_tf32(__builtin_bit_cast(float, bits));
#pragma unroll
      for (int s = 0; s < sets; ++s) {
        multiply_add<T>(sums.at[s][2 * n], left.at[s][k], right[0], right[1]);
        multiply_add<T>(sums.at[s][2 * n + 1], left.at[s][k], right[2], right[3]);
      }
    }
}

/// sums += values · tile, where the values, rounded, are N columns for the rows of the tile from `first` on.
/// A lane has columns 2t and 2t + 1 of the values, and takes them for t and t + 4 of a left operand of TF32.
template <int sets, int N, int W, int rows>
__device__ __forceinline__ void add_product(RowSums<sets, W>& sums, const RowSums<sets, N>& values,
                                            const RowTile<float, rows, W>& tile, int first) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const float* from = &tile.at[first + lane % 4 * 2][lane / 4];
#pragma unroll
  for (int k = 0; k < N / 8; ++k) {
    uint32_t left[sets][4];
#pragma unroll
    for (int s = 0; s < sets; ++s)
#pragma unroll
      for (int i = 0; i < 4; ++i) left[s][i] = to_tf32(values.at[s][k][i % 2 * 2 + i / 2]);
#pragma unroll
    for (int n = 0; n < W / 8; ++n) {
      const float* at = from + 8 * k * tile.length + 8 * n;
      const uint32_t low = to_tf32(at[0]), high = to_tf32(at[tile.length]);
#pragma unroll
      for (int s = 0; s < sets; ++s) multiply_add<float>(sums.at[s][n], left[s], low, high);
    }
  }
}
template <class T, int sets, int N, int W, int rows>
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
      load_matrices<true>(right, from + 16 * k * tile.length + 16 * n);
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
  const bool pairs = width % 2 == 0 && reinterpret_cast<uintptr_t>(to) % sizeof(Several<T, 2>) == 0;
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
          *reinterpret_cast<Several<T, 2>*>(at) = {{static_cast<T>(low), static_cast<T>(high)}};
        } else {
          at[0] = static_cast<T>(low);
          if (column + 1 < width) at[1] = static_cast<T>(high);
        }
      }
    }
}

}  // namespace espalier::cu
