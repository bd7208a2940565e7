// A tile of scores in the registers of a block, and its products with rows of other matrices.
//
// A block has (tile / 4)² threads; each holds a square of 4 × 4 elements, of rows 4 · its line and columns
// 4 · its lane on. Lanes of a line follow each other in a warp.
#pragma once
#include <limits>

#include "espalier/core/philox.h"
#include "espalier/ops/attention/form.h"
#include "espalier/ops/cuda/elements.cuh"

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

/// An attention as a device has it. Matrices are contiguous.
struct DeviceAttention {
  int64_t batch, heads, key_heads, queries, keys, width, value_width;
  double scale, kept;  ///< `kept`: the factor of weights that dropout keeps
  int64_t past;
  int threshold;  ///< of dropout
  bool causal, drops;
  const void* mask;  ///< booleans, or reals of the operands' type; null: none
  bool mask_is_real;
  StridedWalk mask_heads;  ///< the axes of the mask before the queries
  int64_t mask_of_query, mask_of_key;
  const bool* key_mask;  ///< [batch, keys]; null: none
  const int64_t* dropout_keys;

  /// The first head of a batch that a head is in has number head / heads.
  __device__ int64_t key_head(int64_t head) const {
    const int64_t row = divide(head, heads);
    return row * key_heads + divide(head - row * heads, heads / key_heads);
  }
  /// How many keys the queries before `query_end` see, from the first one on.
  __device__ int64_t seen(int64_t query_end) const {
    return causal && query_end + past < keys ? query_end + past : keys;
  }
  /// The score of a query and a key that are there, of which `product` is the scaled product; −∞ if it does
  /// not see the key.
  template <class T>
  __device__ Computed<T> masked(int64_t head, int64_t query, int64_t key, Computed<T> product) const {
    constexpr Computed<T> hidden = -std::numeric_limits<Computed<T>>::infinity();
    if (causal && key > query + past) return hidden;
    if (key_mask && !key_mask[divide(head, heads) * keys + key]) return hidden;
    if (!mask) return product;
    const int64_t at = mask_heads.offset(head) + query * mask_of_query + key * mask_of_key;
    if (mask_is_real) return product + static_cast<Computed<T>>(static_cast<const T*>(mask)[at]);
    return static_cast<const bool*>(mask)[at] ? product : hidden;
  }
  /// The factor of dropout, as on the CPU.
  template <class C>
  __device__ C factor(int64_t head, int64_t query, int64_t key) const {
    if (!drops) return C(1);
    const int64_t number = key * ((queries + 3) / 4) + query / 4;
    const philox::Block block = philox::block(static_cast<unsigned long long>(dropout_keys[head]), 0,
                                              static_cast<unsigned long long>(number));
    const int lane = static_cast<int>(query % 4);
    const unsigned int word = lane == 0   ? block.word[0]
                              : lane == 1 ? block.word[1]
                              : lane == 2 ? block.word[2]
                                          : block.word[3];
    return philox::high_bits(word) < threshold ? static_cast<C>(kept) : C(0);
  }
};

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
