// The gradients of attention without tensor cores.
#include "espalier/ops/attention/cuda/matrix_attention.h"
#include "espalier/ops/attention/cuda/real_attention.h"
#include "espalier/ops/attention/cuda/real_tiles.cuh"

namespace espalier::cu {

namespace {

/// A score becomes a weight, and the gradient of a weight that of the score, unscaled. Where weights are
/// dropped, the gradient has been multiplied by the factor.
template <class C>
__device__ __forceinline__ void find_slope(C& score, C& slope, const Several<C, 2>& terms) {
  score = exponential_of(score - terms.at[0]);
  slope = score * (slope - terms.at[1]);
}

/// One block for each tile of queries (x) of each head (y), and each tile of their columns (z).
template <class T, class C>
__global__ void __launch_bounds__(real_threads, 4)
    find_dq_of_reals(BackwardOperands<T, C> o, T* __restrict__ dq,
                     const __grid_constant__ DeviceAttention a) {
  constexpr int rows = Products<C>::rows;
  __shared__ LeftTile<C> queries, gradients;
  __shared__ RightTile<C> keys;
  // Slopes are written where values have been read.
  __shared__ union {
    RightTile<C> values;
    ScoresTile<C> slopes;
  } memory;
  const int64_t query = int64_t{gridDim.x - 1 - blockIdx.x} * real_rows<C>,
                column = int64_t{blockIdx.z} * real_depth<C>;
  for (int64_t head = blockIdx.y; head < a.batch * a.heads; head += gridDim.y) {
    const int64_t key_head = a.key_head(head);
    const T *own_q = o.q + head * a.queries * a.width, *own_g = o.g + head * a.queries * a.value_width,
            *own_k = o.k + key_head * a.keys * a.width, *own_v = o.v + key_head * a.keys * a.value_width;
    const HeadMasks masks = a.masks_of<T>(head);
    __syncthreads();  // all have read what was there
    load_tile(queries, own_q, query, a.queries, 0, a.width);
    load_tile(gradients, own_g, query, a.queries, 0, a.value_width);
    Several<C, 2> terms[rows];
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      const int64_t at = query + real_line() + 8 * i;
      terms[i] = at < a.queries ? o.terms[head * a.queries + at] : Several<C, 2>{};
    }
    Sums<C> sums;
    sums.clear();
    const int64_t seen = a.seen(query + real_rows<C>);
    for (int64_t key = 0; key < seen; key += other_rows) {
      __syncthreads();  // all have read what was there
      load_tile(keys, own_k, key, a.keys, 0, a.width);
      load_tile(memory.values, own_v, key, a.keys, 0, a.value_width);
      __syncthreads();
      Products<C> scores, slopes;
      LongProduct<T, C>{queries, own_q, query, a.queries, keys, own_k, key, a.keys, a.width}.find(scores);
      LongProduct<T, C>{gradients, own_g, query, a.queries, memory.values, own_v, key, a.keys, a.value_width}
          .find(slopes);
      find_scores<false, T>(scores, memory.slopes, a, masks, query, key);
      if (a.drops) drop<false>(slopes, memory.slopes, a, masks, query, key);
#pragma unroll
      for (int i = 0; i < rows; ++i)
#pragma unroll
        for (int j = 0; j < Products<C>::columns; ++j) find_slope(scores.at[i][j], slopes.at[i][j], terms[i]);
      __syncthreads();  // all have read what was there
      slopes.store(memory.slopes);
      if (a.width > real_depth<C>) load_tile(keys, own_k, key, a.keys, column, a.width);
      __syncthreads();
      sums.add(memory.slopes, keys);
    }
    sums.store(dq + head * a.queries * a.width, query, a.queries, column, a.width,
               [&](int) { return static_cast<C>(a.scale); });
  }
}

/// What the kernel of keys and values has in shared memory.
template <class C>
struct KeysMemory {
  LeftTile<C> keys, values;
  RightTile<C> queries, gradients;
  ScoresTile<C> weights;
};

/// One block for each tile of keys (x) of each of their heads (y), and each tile of columns (z). Scores have
/// their rows, and queries as columns.
template <class T, class C>
__global__ void __launch_bounds__(real_threads, 4)
    find_dk_dv_of_reals(BackwardOperands<T, C> o, T* __restrict__ dk, T* __restrict__ dv,
                        const __grid_constant__ DeviceAttention a) {
  constexpr int columns = Products<C>::columns;
  KeysMemory<C>& memory = *dynamic_shared<KeysMemory<C>>();
  const int64_t key = int64_t{blockIdx.x} * real_rows<C>, column = int64_t{blockIdx.z} * real_depth<C>;
  const int64_t group = a.heads / a.key_heads;
  // The first tile of queries of which one sees a key of the block.
  const int64_t begin = a.causal && key > a.past ? (key - a.past) / other_rows * other_rows : 0;
  for (int64_t key_head = blockIdx.y; key_head < a.batch * a.key_heads; key_head += gridDim.y) {
    const T *own_k = o.k + key_head * a.keys * a.width, *own_v = o.v + key_head * a.keys * a.value_width;
    __syncthreads();  // all have read what was there
    load_tile(memory.keys, own_k, key, a.keys, 0, a.width);
    load_tile(memory.values, own_v, key, a.keys, 0, a.value_width);
    Sums<C> sum_k, sum_v;
    sum_k.clear();
    sum_v.clear();
    // Heads that a head of keys serves follow each other, through all of the batch.
    for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head) {
      const T *own_q = o.q + head * a.queries * a.width, *own_g = o.g + head * a.queries * a.value_width;
      const HeadMasks masks = a.masks_of<T>(head);
      for (int64_t query = begin; query < a.queries; query += other_rows) {
        __syncthreads();  // all have read what was there
        load_tile(memory.queries, own_q, query, a.queries, 0, a.width);
        load_tile(memory.gradients, own_g, query, a.queries, 0, a.value_width);
        __syncthreads();
        Products<C> weights, slopes;
        LongProduct<T, C>{memory.keys, own_k, key, a.keys, memory.queries, own_q, query, a.queries, a.width}
            .find(weights);
        LongProduct<T, C>{memory.values, own_v, key,       a.keys,       memory.gradients,
                          own_g,         query, a.queries, a.value_width}
            .find(slopes);
        find_scores<true, T>(weights, memory.weights, a, masks, query, key);
        if (a.drops) drop<true>(slopes, memory.weights, a, masks, query, key);
#pragma unroll
        for (int j = 0; j < columns; ++j) {
          const int64_t at = query + real_lane() + 8 * j;
          const Several<C, 2> terms = at < a.queries ? o.terms[head * a.queries + at] : Several<C, 2>{};
#pragma unroll
          for (int i = 0; i < Products<C>::rows; ++i) find_slope(weights.at[i][j], slopes.at[i][j], terms);
        }
        if (a.drops) drop<true>(weights, memory.weights, a, masks, query, key);
        __syncthreads();  // all have read what was there
        weights.store(memory.weights);
        if (a.width > real_depth<C>) load_tile(memory.queries, own_q, query, a.queries, column, a.width);
        if (a.value_width > real_depth<C>)
          load_tile(memory.gradients, own_g, query, a.queries, column, a.value_width);
        __syncthreads();
        sum_v.add(memory.weights, memory.gradients);
        __syncwarp();  // its lanes have read what was there
        slopes.store(memory.weights);
        __syncwarp();
        sum_k.add(memory.weights, memory.queries);
      }
    }
    sum_k.store(dk + key_head * a.keys * a.width, key, a.keys, column, a.width,
                [&](int) { return static_cast<C>(a.scale); });
    sum_v.store(dv + key_head * a.keys * a.value_width, key, a.keys, column, a.value_width,
                [](int) { return C(1); });
  }
}

}  // namespace

template <class T>
void attend_back_by_reals(const DeviceAttention& a, const BackwardOperands<T, Computed<T>>& o, T* dq, T* dk,
                          T* dv) {
  using C = Computed<T>;
  constexpr int rows = real_rows<C>, columns = real_depth<C>;
  launch(find_dq_of_reals<T, C>,
         tiles_grid(a.queries, a.batch * a.heads, rows, real_threads, divide_up(a.width, columns)), o, dq, a);
  Grid grid = tiles_grid(a.keys, a.batch * a.key_heads, rows, real_threads,
                         divide_up(std::max(a.width, a.value_width), columns));
  grid.shared = sizeof(KeysMemory<C>);
  check(cudaFuncSetAttribute(reinterpret_cast<const void*>(find_dk_dv_of_reals<T, C>),
                             cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(grid.shared)),
        "shared memory of a kernel");
  launch(find_dk_dv_of_reals<T, C>, grid, o, dk, dv, a);
}

template void attend_back_by_reals(const DeviceAttention&, const BackwardOperands<float, float>&, float*,
                                   float*, float*);
template void attend_back_by_reals(const DeviceAttention&, const BackwardOperands<double, double>&, double*,
                                   double*, double*);
template void attend_back_by_reals(const DeviceAttention&, const BackwardOperands<Float16, float>&, Float16*,
                                   Float16*, Float16*);
template void attend_back_by_reals(const DeviceAttention&, const BackwardOperands<BFloat16, float>&,
                                   BFloat16*, BFloat16*, BFloat16*);

}  // namespace espalier::cu
