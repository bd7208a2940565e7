// The result of attention by tensor cores.
#include "espalier/ops/attention/cuda/matrix_attention.h"
#include "espalier/ops/attention/cuda/matrix_scores.cuh"

namespace espalier::cu {

namespace {

template <class T, int W, bool masked>
struct ForwardTiles {
  static constexpr bool small = masked || W * sizeof(T) > 128;
  static constexpr int sets = small ? 1 : 2, rows_of_warp = 16 * sets, rows = matrix_warps * rows_of_warp;
  static constexpr int keys = small ? 32 : 64;
};

/// What a warp has summed up of its rows. `largest` are products, or scores if there are masks; `total` is
/// that of the lane's columns.
template <int sets, int W>
struct AttentionSums {
  RowSums<sets, W> values;
  float largest[sets][2], total[sets][2];

  __device__ AttentionSums() {
    clear_sums(values);
#pragma unroll
    for (int s = 0; s < sets; ++s)
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) largest[s][lower] = hidden_score, total[s][lower] = 0;
  }
  /// Products of a tile, times `factor`, become weights, as all sums are from now on.
  template <int N>
  __device__ __forceinline__ void weigh(RowSums<sets, N>& scores, float factor) {
#pragma unroll
    for (int s = 0; s < sets; ++s)
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        float best = largest[s][lower];
#pragma unroll
        for (int n = 0; n < N / 8; ++n)
          best = fmaxf(best, fmaxf(scores.at[s][n][2 * lower], scores.at[s][n][2 * lower + 1]));
        best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 1));
        best = fmaxf(best, __shfl_xor_sync(0xffffffffu, best, 2));
        // A query that has seen nothing yet has no largest score to subtract.
        const float shift = best == hidden_score ? 0.0f : best * factor;
        const float shrink = exp2_of(fmaf(largest[s][lower], factor, -shift));
        largest[s][lower] = best;
        float sum = 0;
#pragma unroll
        for (int n = 0; n < N / 8; ++n)
#pragma unroll
          for (int i = 2 * lower; i < 2 * lower + 2; ++i) {
            scores.at[s][n][i] = exp2_of(fmaf(scores.at[s][n][i], factor, -shift));
            sum += scores.at[s][n][i];
          }
        total[s][lower] = fmaf(total[s][lower], shrink, sum);
#pragma unroll
        for (int n = 0; n < W / 8; ++n)
          values.at[s][n][2 * lower] *= shrink, values.at[s][n][2 * lower + 1] *= shrink;
      }
  }
};

/// Blocks of late queries, which may see the most keys, begin first.
template <class T, int W, bool masked>
__global__ void __launch_bounds__(matrix_threads, 2)
    attend(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v, T* __restrict__ out,
           float* __restrict__ log_sums, const __grid_constant__ DeviceAttention a) {
  using Tiles = ForwardTiles<T, W, masked>;
  constexpr int sets = Tiles::sets, N = Tiles::keys, rows_of_warp = Tiles::rows_of_warp;
  __shared__ RowTile<T, N, W> keys[2], values[2];
  __shared__ MaskTile<masked ? Tiles::rows : 1, masked ? N : 1, false> mask;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t query = int64_t{gridDim.x - 1 - blockIdx.x} * Tiles::rows, own = query + warp * rows_of_warp;
  const ScoreUnits units(a, masked);
  for (int64_t head = blockIdx.y; head < a.batch * a.heads; head += gridDim.y) {
    const int64_t key_head = a.key_head(head);
    const T *own_k = k + key_head * a.keys * a.width, *own_v = v + key_head * a.keys * a.value_width;
    const auto copy = [&](int64_t key, int stage) {
      copy_rows(keys[stage], own_k, key, a.keys, a.width);
      copy_rows(values[stage], own_v, key, a.keys, a.value_width);
    };
    const HeadMasks masks = masked ? a.masks_of<T>(head) : HeadMasks{};
    const int64_t seen = a.seen(query + Tiles::rows);
    __syncthreads();  // all have read what was there
    if (seen > 0) copy(0, 0);
    LeftRows<T, sets, W> left;
    load_left(left, q + head * a.queries * a.width, own, a.queries, a.width, units.negated);
    AttentionSums<sets, W> sums;
    int stage = 0;
    for (int64_t key = 0; key < seen; key += N, stage ^= 1) {
      await_copies();
      __syncthreads();  // all have read what was there before, too
      if (key + N < seen) copy(key + N, stage ^ 1);
      if constexpr (masked) {
        mask.template fill<T>(a, masks, query, key);
        __syncthreads();
      }
      // The warp's row r sees the tile's column c if c <= r + past.
      const int there = static_cast<int>(min(a.keys - key, int64_t{N}));
      const int past =
          a.causal ? static_cast<int>(max(min(own + a.past - key, int64_t{N}), int64_t{-rows_of_warp})) : N;
      if (past + rows_of_warp <= 0) continue;
      RowSums<sets, N> scores;
      multiply_transposed(scores, left, keys[stage], 0);
      if constexpr (masked) {
        each_sum(scores, [&](float& score, int row, int column) {
          const float added = mask.added[warp * rows_of_warp + row][column];
          score = added == hidden_score ? hidden_score : fmaf(score, units.factor, added);
        });
      } else if (there < N || past < N - 1) {
        each_sum(scores, [&](float& score, int row, int column) {
          if (column >= there || column > row + past) score = hidden_score;
        });
      }
      sums.weigh(scores, masked ? 1.0f : units.factor);
      if constexpr (masked)
        if (a.drops)
          each_sum(scores, [&](float& weight, int row, int column) {
            if (!mask.kept[warp * rows_of_warp + row][column]) weight = 0;
          });
      add_product(sums.values, scores, values[stage], 0);
    }
    const float kept = masked && a.drops ? static_cast<float>(a.kept) : 1.0f;
#pragma unroll
    for (int s = 0; s < sets; ++s)
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        float& total = sums.total[s][lower];
        total = fold_lanes(total, 4, scalar::Add());
        const int64_t at = own + 16 * s + lane / 4 + 8 * lower;
        if (lane % 4 == 0 && at < a.queries)
          log_sums[head * a.queries + at] =
              total == 0
                  ? std::numeric_limits<float>::infinity()
                  : sums.largest[s][lower] * (masked ? 1.0f : units.factor) * log_of_2 + scalar::Log()(total);
      }
    store_rows(
        out + head * a.queries * a.value_width, sums.values, own, a.queries, a.value_width,
        [&](int s, int lower) { return sums.total[s][lower] == 0 ? 0.0f : kept / sums.total[s][lower]; });
  }
}

}  // namespace

template <class T>
void attend_by_matrices(const DeviceAttention& a, const T* q, const T* k, const T* v, T* out,
                        float* log_sums) {
  of_width<T>(a, [&]<int W, bool masked> {
    launch(attend<T, W, masked>,
           tiles_grid(a.queries, a.batch * a.heads, ForwardTiles<T, W, masked>::rows, matrix_threads), q, k,
           v, out, log_sums, a);
  });
}

template void attend_by_matrices(const DeviceAttention&, const Float16*, const Float16*, const Float16*,
                                 Float16*, float*);
template void attend_by_matrices(const DeviceAttention&, const BFloat16*, const BFloat16*, const BFloat16*,
                                 BFloat16*, float*);
template void attend_by_matrices(const DeviceAttention&, const float*, const float*, const float*, float*,
                                 float*);

}  // namespace espalier::cu
