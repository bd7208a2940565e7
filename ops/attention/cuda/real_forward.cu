// The result of attention without tensor cores.
#include "espalier/ops/attention/cuda/matrix_attention.h"
#include "espalier/ops/attention/cuda/real_attention.h"
#include "espalier/ops/attention/cuda/real_tiles.cuh"

namespace espalier::cu {

namespace {

/// One block for each tile of queries (x) of each head (y), and each tile of columns of the values (z).
template <class T, class C>
__global__ void __launch_bounds__(real_threads, 5)
    attend_reals(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                 T* __restrict__ out, C* __restrict__ log_sums, const __grid_constant__ DeviceAttention a) {
  constexpr C hidden = -std::numeric_limits<C>::infinity();
  constexpr int rows = Products<C>::rows;
  __shared__ LeftTile<C> left;
  __shared__ RightTile<C> keys, values;
  __shared__ ScoresTile<C> weights;
  const int64_t query = int64_t{gridDim.x - 1 - blockIdx.x} * real_rows<C>,
                column = int64_t{blockIdx.z} * real_depth<C>;
  for (int64_t head = blockIdx.y; head < a.batch * a.heads; head += gridDim.y) {
    const int64_t key_head = a.key_head(head);
    const T *own_q = q + head * a.queries * a.width, *own_k = k + key_head * a.keys * a.width,
            *own_v = v + key_head * a.keys * a.value_width;
    const HeadMasks masks = a.masks_of<T>(head);
    __syncthreads();  // all have read what was there
    load_tile(left, own_q, query, a.queries, 0, a.width);
    Sums<C> sums;
    sums.clear();
    C largest[rows], total[rows];  // the total of the lane's keys
#pragma unroll
    for (int i = 0; i < rows; ++i) largest[i] = hidden, total[i] = 0;
    const int64_t seen = a.seen(query + real_rows<C>);
    for (int64_t key = 0; key < seen; key += other_rows) {
      __syncthreads();  // all have read what was there
      load_tile(keys, own_k, key, a.keys, 0, a.width);
      load_tile(values, own_v, key, a.keys, column, a.value_width);
      __syncthreads();
      Products<C> scores;
      LongProduct<T, C>{left, own_q, query, a.queries, keys, own_k, key, a.keys, a.width}.find(scores);
      find_scores<false, T>(scores, weights, a, masks, query, key);
#pragma unroll
      for (int i = 0; i < rows; ++i) {
        C best = largest[i];
#pragma unroll
        for (int j = 0; j < Products<C>::columns; ++j) best = max(best, scores.at[i][j]);
        for (int lanes = real_lanes / 2; lanes > 0; lanes /= 2)
          best = max(best, __shfl_xor_sync(0xffffffffu, best, lanes));
        // A query that has seen nothing yet has no largest score to subtract.
        const C shift = best == hidden ? C(0) : best, shrink = exponential_of(largest[i] - shift);
        largest[i] = best;
        total[i] *= shrink;
#pragma unroll
        for (int j = 0; j < Products<C>::columns; ++j) {
          scores.at[i][j] = exponential_of(scores.at[i][j] - shift);
          total[i] += scores.at[i][j];
        }
        sums.scale(i, shrink);
      }
      if (a.drops) drop<false>(scores, weights, a, masks, query, key);
      __syncwarp();  // its lanes have read what was there
      scores.store(weights);
      __syncwarp();
      sums.add(weights, values);
    }
#pragma unroll
    for (int i = 0; i < rows; ++i) {
      total[i] = fold_lanes(total[i], real_lanes, scalar::Add());
      const int64_t at = query + real_line() + 8 * i;
      if (real_lane() == 0 && column == 0 && at < a.queries)
        log_sums[head * a.queries + at] = total[i] == 0
                                              ? std::numeric_limits<C>::infinity()
                                              : largest[i] / score_unit<C> + scalar::Log()(total[i]);
    }
    sums.store(out + head * a.queries * a.value_width, query, a.queries, column, a.value_width,
               [&](int i) { return total[i] == 0 ? C(0) : 1 / total[i]; });
  }
}

}  // namespace

template <class T>
void attend_by_reals(const DeviceAttention& a, const T* q, const T* k, const T* v, T* out,
                     Computed<T>* log_sums) {
  using C = Computed<T>;
  launch(attend_reals<T, C>,
         tiles_grid(a.queries, a.batch * a.heads, real_rows<C>, real_threads,
                    divide_up(a.value_width, real_depth<C>)),
         q, k, v, out, log_sums, a);
}

template void attend_by_reals(const DeviceAttention&, const float*, const float*, const float*, float*,
                              float*);
template void attend_by_reals(const DeviceAttention&, const double*, const double*, const double*, double*,
                              double*);
template void attend_by_reals(const DeviceAttention&, const Float16*, const Float16*, const Float16*,
                              Float16*, float*);
template void attend_by_reals(const DeviceAttention&, const BFloat16*, const BFloat16*, const BFloat16*,
                              BFloat16*, float*);

}  // namespace espalier::cu
