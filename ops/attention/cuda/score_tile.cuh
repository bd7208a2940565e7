// A tile of scores in the registers of a block, and its products with rows of other matrices.
//
// A block has (tile / 4)² threads; each holds a square of 4 × 4 elements, of rows 4 · its line and columns
// 4 · its lane on. Lanes of a line follow each other in a warp.
#pragma once
#include "espalier/ops/attention/cuda/device_attention.cuh"

namespace espalier::cu {

/// Doubles have smaller tiles, so that shared memory holds two.
template <class C>
inline constexpr int score_tile = sizeof(C) == 8 ? 32 : 64;
template <class C>
inline constexpr int tile_lanes = score_tile<C> / 4;
template <class C>
inline constexpr int tile_threads = tile_lanes<C>* tile_lanes<C>;
/// Columns of the operands of a product that shared memory holds at a time.
inline constexpr int tile_depth = 16;

/// Shared memory of a block.
template <class C>
struct TileMemory {
  C weights[score_tile<C>][score_tile<C> + 1];
  union {
    C rows[score_tile<C>][score_tile<C>];
    struct {
      C left[score_tile<C>][tile_depth + 1], right[score_tile<C>][tile_depth + 1];
    } depth;
  };
};

template <class C>
using Square = C[4][4];

__device__ inline void clear(auto& square) {
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll
    for (int j = 0; j < 4; ++j) square[i][j] = 0;
}

/// sum = a bᵀ for the tile of rows from `a_row` of a and `b_row` of b on, which have `width` columns. Rows
/// beyond the ends are 0. All threads of the block must call it.
template <class T, class C>
__device__ void multiply_rows(TileMemory<C>& memory, const T* a, int64_t a_row, int64_t a_rows, const T* b,
                              int64_t b_row, int64_t b_rows, int64_t width, Square<C>& sum) {
  constexpr int tile = score_tile<C>;
  const int line = static_cast<int>(threadIdx.x) / tile_lanes<C>,
            lane = static_cast<int>(threadIdx.x) % tile_lanes<C>;
  clear(sum);
  for (int64_t begin = 0; begin < width; begin += tile_depth) {
    __syncthreads();  // all have read what was there
    for (int i = static_cast<int>(threadIdx.x); i < tile * tile_depth; i += tile_threads<C>) {
      const int row = i / tile_depth, column = i % tile_depth;
      const bool inside = begin + column < width;
      memory.depth.left[row][column] =
          inside && a_row + row < a_rows ? static_cast<C>(a[(a_row + row) * width + begin + column]) : C(0);
      memory.depth.right[row][column] =
          inside && b_row + row < b_rows ? static_cast<C>(b[(b_row + row) * width + begin + column]) : C(0);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < tile_depth; ++k)
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int j = 0; j < 4; ++j)
          sum[i][j] += memory.depth.left[4 * line + i][k] * memory.depth.right[4 * lane + j][k];
  }
}

/// sum += weights · rows, or weightsᵀ · rows, for the columns from `column` on of the tile of rows from `row`
/// on. The weights are those of `square`, which the block shares. All threads of the block must call it.
template <bool transposed, class T, class C>
__device__ void add_product(TileMemory<C>& memory, const Square<C>& square, const T* from, int64_t row,
                            int64_t rows, int64_t column, int64_t width, Square<C>& sum) {
  constexpr int tile = score_tile<C>;
  const int line = static_cast<int>(threadIdx.x) / tile_lanes<C>,
            lane = static_cast<int>(threadIdx.x) % tile_lanes<C>;
  __syncthreads();  // all have read what was there
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j)
      if constexpr (transposed)
        memory.weights[4 * lane + j][4 * line + i] = square[i][j];
      else
        memory.weights[4 * line + i][4 * lane + j] = square[i][j];
  for (int i = static_cast<int>(threadIdx.x); i < tile * tile; i += tile_threads<C>) {
    const int r = i / tile, c = i % tile;
    memory.rows[r][c] =
        row + r < rows && column + c < width ? static_cast<C>(from[(row + r) * width + column + c]) : C(0);
  }
  __syncthreads();
#pragma unroll 4
  for (int k = 0; k < tile; ++k)
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int j = 0; j < 4; ++j) sum[i][j] += memory.weights[4 * line + i][k] * memory.rows[k][4 * lane + j];
}

}  // namespace espalier::cu
