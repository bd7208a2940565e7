// Tiles of matrices of float or double in shared memory, and their products without tensor cores.
//
// The 64 threads of a block have eight lines of eight lanes. A thread has of a tile of products the rows
// line, line + 8, … and the columns lane, lane + 8, …; of a tile of sums the columns are vectors of 16 bytes.
#pragma once
#include <limits>

#include "espalier/ops/attention/cuda/device_attention.cuh"

namespace espalier::cu {

inline constexpr int real_threads = 64, real_lanes = 8;

/// The rows that a block has of one operand, and those of the other ones that shared memory holds at a time;
/// the columns of both that it holds at a time.
template <class C>
inline constexpr int real_rows = sizeof(C) == 4 ? 64 : 32;
inline constexpr int other_rows = 32;
template <class C>
inline constexpr int real_depth = sizeof(C) == 4 ? 64 : 32;

/// Vectors of a row are permuted, so that those of eight rows are in different banks.
template <class C, int R, int D>
struct RealTile {
  static constexpr int V = vector_width<C>;
  alignas(16) C at[R * D];

  __device__ __forceinline__ C* vector(int row, int number) {
    return at + row * D + (number ^ (row & 7)) * V;
  }
  __device__ __forceinline__ Several<C, V> read(int row, int number) const {
    return *reinterpret_cast<const Several<C, V>*>(at + row * D + (number ^ (row & 7)) * V);
  }
  __device__ __forceinline__ C& element(int row, int column) { return vector(row, column / V)[column % V]; }
};
template <class C>
using LeftTile = RealTile<C, real_rows<C>, real_depth<C>>;
template <class C>
using RightTile = RealTile<C, other_rows, real_depth<C>>;
template <class C>
using ScoresTile = RealTile<C, real_rows<C>, other_rows>;

__device__ __forceinline__ float exponential_of(float x) { return exp2_of(x); }
__device__ __forceinline__ double exponential_of(double x) { return scalar::Exp()(x); }

__device__ __forceinline__ int real_line() { return static_cast<int>(threadIdx.x) / real_lanes; }
__device__ __forceinline__ int real_lane() { return static_cast<int>(threadIdx.x) % real_lanes; }

/// Columns from `column` on of rows from `first` on; what is beyond the ends is 0. All threads of the block
/// call it.
template <class T, class C, int R, int D>
__device__ void load_tile(RealTile<C, R, D>& to, const T* from, int64_t first, int64_t rows, int64_t column,
                          int64_t width) {
  constexpr int V = vector_width<C>, vectors = D / V, step = real_threads / vectors, batch = 8;
  static_assert(R % (batch * step) == 0);
  const int number = static_cast<int>(threadIdx.x) % vectors;
  const int there = static_cast<int>(min(rows - first, int64_t{R}));
  int row = static_cast<int>(threadIdx.x) / vectors;
  column += number * V;
  const T* at = from + (first + row) * width + column;
  if (width % V == 0 && reinterpret_cast<uintptr_t>(from) % sizeof(Several<T, V>) == 0) {
    // Several reads are under way at a time.
    for (; row < R; row += batch * step) {
      Several<T, V> read[batch];
#pragma unroll
      for (int i = 0; i < batch; ++i, at += step * width) {
        read[i] = {};
        if (row + i * step < there && column < width) read[i] = *reinterpret_cast<const Several<T, V>*>(at);
      }
#pragma unroll
      for (int i = 0; i < batch; ++i) {
        Several<C, V> values;
#pragma unroll
        for (int k = 0; k < V; ++k) values.at[k] = static_cast<C>(read[i].at[k]);
        *reinterpret_cast<Several<C, V>*>(to.vector(row + i * step, number)) = values;
      }
    }
    return;
  }
#pragma unroll 1
  for (; row < R; row += step, at += step * width)
    for (int k = 0; k < V; ++k)
      to.vector(row, number)[k] = row < there && column + k < width ? static_cast<C>(at[k]) : C(0);
}

/// What a thread has of a tile of scores.
template <class C>
struct Products {
  static constexpr int rows = real_rows<C> / 8, columns = other_rows / 8;
  C at[rows][columns];

  __device__ __forceinline__ void clear() {
    each([](C& x, int, int) { x = 0; });
  }
  /// f(element, row, column)
  template <class F>
  __device__ __forceinline__ void each(F&& f) {
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
      for (int j = 0; j < columns; ++j) f(at[i][j], real_line() + 8 * i, real_lane() + 8 * j);
  }
  /// Adds left · rightᵀ.
  __device__ __forceinline__ void add(const LeftTile<C>& left, const RightTile<C>& right) {
    constexpr int V = vector_width<C>;
#pragma unroll 2
    for (int v = 0; v < real_depth<C> / V; ++v) {
      Several<C, V> b[columns];
#pragma unroll
      for (int j = 0; j < columns; ++j) b[j] = right.read(real_lane() + 8 * j, v);
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        const Several<C, V> a = left.read(real_line() + 8 * i, v);
#pragma unroll
        for (int j = 0; j < columns; ++j)
#pragma unroll
          for (int k = 0; k < V; ++k) at[i][j] += a.at[k] * b[j].at[k];
      }
    }
  }
  __device__ __forceinline__ void store(ScoresTile<C>& to) {
    each([&](C x, int row, int column) { to.element(row, column) = x; });
  }
};

/// What is added to the scores of a tile, in their unit. Queries are its rows, or its columns where it is
/// `transposed`. All threads of the block call it, before and after a barrier.
template <bool transposed, class T, class C>
__device__ void fill_masks(ScoresTile<C>& to, const DeviceAttention& a, const HeadMasks& masks, int64_t query,
                           int64_t key) {
  constexpr int R = real_rows<C>;
#pragma unroll 4
  for (int i = static_cast<int>(threadIdx.x); i < R * other_rows; i += real_threads) {
    const int row = transposed ? i % R : i / other_rows, column = transposed ? i / R : i % other_rows;
    const int64_t q = query + (transposed ? column : row), k = key + (transposed ? row : column);
    to.element(row, column) = q < a.queries && k < a.keys ? a.masked<T>(masks, q, k, C(0)) * score_unit<C>
                                                          : -std::numeric_limits<C>::infinity();
  }
}
/// The factors of dropout of a tile.
template <bool transposed, class C>
__device__ void fill_factors(ScoresTile<C>& to, const DeviceAttention& a, const HeadMasks& masks,
                             int64_t query, int64_t key) {
  constexpr int R = real_rows<C>;
  for (int i = static_cast<int>(threadIdx.x); i < R * other_rows / 4; i += real_threads) {
    const int row = transposed ? i % R : i / other_rows * 4, column = transposed ? i / R * 4 : i % other_rows;
    const unsigned bits =
        a.keeps(masks, query + (transposed ? column : row), key + (transposed ? row : column));
#pragma unroll
    for (int j = 0; j < 4; ++j)
      to.element(row + (transposed ? 0 : j), column + (transposed ? j : 0)) =
          bits >> j & 1 ? static_cast<C>(a.kept) : C(0);
  }
}

/// Products of a tile become scores. `memory` is written where there are masks; its own elements are then the
/// thread's. All threads of the block call it.
template <bool transposed, class T, class C>
__device__ __forceinline__ void find_scores(Products<C>& products, ScoresTile<C>& memory,
                                            const DeviceAttention& a, const HeadMasks& masks, int64_t query,
                                            int64_t key) {
  constexpr C hidden = -std::numeric_limits<C>::infinity();
  const C unit = static_cast<C>(a.scale) * score_unit<C>;
  if (masks.mask || masks.key_mask) {
    __syncthreads();  // all have read what was there
    fill_masks<transposed, T>(memory, a, masks, query, key);
    __syncthreads();
    products.each([&](C& x, int row, int column) {
      const C added = memory.element(row, column);
      x = added == hidden ? hidden : x * unit + added;
    });
    return;
  }
  constexpr int queries = transposed ? other_rows : real_rows<C>,
                keys = transposed ? real_rows<C> : other_rows;
  const int there = static_cast<int>(min(a.keys - key, int64_t{keys}));
  const int past =
      a.causal ? static_cast<int>(max(min(query + a.past - key, int64_t{keys}), int64_t{-queries})) : keys;
  const bool whole = there == keys && past >= keys - 1;
  products.each([&](C& x, int row, int column) {
    const int q = transposed ? column : row, k = transposed ? row : column;
    x = whole || (k < there && k <= q + past) ? x * unit : hidden;
  });
}
/// Elements of a tile times the factors of dropout. All threads of the block call it.
template <bool transposed, class C>
__device__ __forceinline__ void drop(Products<C>& products, ScoresTile<C>& memory, const DeviceAttention& a,
                                     const HeadMasks& masks, int64_t query, int64_t key) {
  __syncthreads();  // all have read what was there
  fill_factors<transposed>(memory, a, masks, query, key);
  __syncthreads();
  products.each([&](C& x, int row, int column) { x *= memory.element(row, column); });
}

/// left · rightᵀ of rows of the given width. With one tile of columns, both are there already.
template <class T, class C>
struct LongProduct {
  LeftTile<C>& left;
  const T* left_rows;
  int64_t first, count;
  RightTile<C>& right;
  const T* right_rows;
  int64_t right_first, right_count;
  int64_t width;

  __device__ __forceinline__ void find(Products<C>& products) {
    products.clear();
    for (int64_t column = 0; column < width; column += real_depth<C>) {
      if (width > real_depth<C>) {
        __syncthreads();  // all have read what was there
        load_tile(left, left_rows, first, count, column, width);
        load_tile(right, right_rows, right_first, right_count, column, width);
        __syncthreads();
      }
      products.add(left, right);
    }
  }
};

/// What a thread has of a tile of sums.
template <class C>
struct Sums {
  static constexpr int V = vector_width<C>, rows = real_rows<C> / 8, vectors = real_depth<C> / V / 8;
  Several<C, V> at[rows][vectors];

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < rows; ++i)
#pragma unroll
      for (int h = 0; h < vectors; ++h) at[i][h] = {};
  }
  __device__ __forceinline__ void scale(int i, C factor) {
#pragma unroll
    for (int h = 0; h < vectors; ++h)
#pragma unroll
      for (int c = 0; c < V; ++c) at[i][h].at[c] *= factor;
  }
  /// Adds weights · values. Weights of a warp's rows are written by the warp.
  __device__ __forceinline__ void add(const ScoresTile<C>& weights, const RightTile<C>& values) {
#pragma unroll 2
    for (int v = 0; v < other_rows / V; ++v) {
      Several<C, V> a[rows];
#pragma unroll
      for (int i = 0; i < rows; ++i) a[i] = weights.read(real_line() + 8 * i, v);
#pragma unroll
      for (int k = 0; k < V; ++k)
#pragma unroll
        for (int h = 0; h < vectors; ++h) {
          const Several<C, V> b = values.read(v * V + k, real_lane() + 8 * h);
#pragma unroll
          for (int i = 0; i < rows; ++i)
#pragma unroll
            for (int c = 0; c < V; ++c) at[i][h].at[c] += a[i].at[k] * b.at[c];
        }
    }
  }
  /// Writes them, times `factor(i)` in the thread's i-th row, to columns from `column` on.
  template <class T, class F>
  __device__ __forceinline__ void store(T* to, int64_t first, int64_t count, int64_t column, int64_t width,
                                        F&& factor) const {
    const bool whole = width % V == 0 && reinterpret_cast<uintptr_t>(to) % sizeof(Several<T, V>) == 0;
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const int64_t row = first + real_line() + 8 * i;
      if (row >= count) continue;
      const C times = factor(i);
#pragma unroll
      for (int h = 0; h < vectors; ++h) {
        const int64_t from = column + (real_lane() + 8 * h) * V;
        Several<T, V> values;
#pragma unroll
        for (int c = 0; c < V; ++c) values.at[c] = static_cast<T>(at[i][h].at[c] * times);
        if (whole && from < width) *reinterpret_cast<Several<T, V>*>(to + row * width + from) = values;
#pragma unroll
        for (int c = 0; c < V; ++c)
          if (!whole && from + c < width) to[row * width + from + c] = values.at[c];
      }
    }
  }
};

}  // namespace espalier::cu
