// The gradients of attention by tensor cores, of the queries and of the keys and values by a kernel each, so
// that sums have one order.
#include "espalier/ops/attention/cuda/matrix_attention.h"
#include "espalier/ops/attention/cuda/matrix_scores.cuh"

namespace espalier::cu {

namespace {

/// Columns of scores are computed in steps, of which the registers have room for one beside the sums.
template <class T, int W, bool masked>
struct QueryTiles {
  static constexpr bool small = masked || W * sizeof(T) > 128;
  static constexpr int sets = small ? 1 : 2, rows_of_warp = 16 * sets, rows = matrix_warps * rows_of_warp;
  static constexpr int keys = small ? 32 : 64, step = W * sizeof(T) > 128 ? 16 : 32;
};
template <class T, int W, bool masked>
struct KeyTiles {
  static constexpr bool small = masked || W * sizeof(T) > 128;
  static constexpr int rows = matrix_warps * 16;
  static constexpr int queries = small ? 32 : 64, step = W * sizeof(T) > 128 ? 16 : 32;
};

/// A product becomes a weight, and the gradient of a weight that of the score, unscaled. `factor`: of
/// dropout.
__device__ __forceinline__ void find_slope(float& score, float& slope, float units,
                                           const Several<float, 2>& terms, float factor) {
  const float weight = exp2_of(fmaf(score, units, -terms.at[0]));
  slope = weight * fmaf(slope, factor, -terms.at[1]);
  score = weight * factor;
}

/// One block for each tile of queries. Blocks of late ones, which may see the most keys, begin first.
template <class T, int W, bool masked>
__global__ void __launch_bounds__(matrix_threads, 2)
    find_dq_of_rows(BackwardOperands<T, float> o, T* __restrict__ dq,
                    const __grid_constant__ DeviceAttention a) {
  using Tiles = QueryTiles<T, W, masked>;
  constexpr int sets = Tiles::sets, N = Tiles::keys, step = Tiles::step, rows_of_warp = Tiles::rows_of_warp;
  __shared__ RowTile<T, N, W> keys[2], values[2];
  __shared__ MaskTile<masked ? Tiles::rows : 1, masked ? N : 1, false> mask;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t query = int64_t{gridDim.x - 1 - blockIdx.x} * Tiles::rows, own = query + warp * rows_of_warp;
  const ScoreUnits units(a, masked);
  for (int64_t head = blockIdx.y; head < a.batch * a.heads; head += gridDim.y) {
    const int64_t key_head = a.key_head(head);
    const T *own_k = o.k + key_head * a.keys * a.width, *own_v = o.v + key_head * a.keys * a.value_width;
    const auto copy = [&](int64_t key, int stage) {
      copy_rows(keys[stage], own_k, key, a.keys, a.width);
      copy_rows(values[stage], own_v, key, a.keys, a.value_width);
    };
    const HeadMasks masks = masked ? a.masks_of<T>(head) : HeadMasks{};
    const int64_t seen = a.seen(query + Tiles::rows);
    __syncthreads();  // all have read what was there
    if (seen > 0) copy(0, 0);
    LeftRows<T, sets, W> of_q, of_g;
    load_left(of_q, o.q + head * a.queries * a.width, own, a.queries, a.width, units.negated);
    load_left(of_g, o.g + head * a.queries * a.value_width, own, a.queries, a.value_width);
    Several<float, 2> terms[sets][2];
#pragma unroll
    for (int s = 0; s < sets; ++s)
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        const int64_t at = own + 16 * s + lane / 4 + 8 * lower;
        terms[s][lower] = at < a.queries ? o.terms[head * a.queries + at] : Several<float, 2>{};
      }
    RowSums<sets, W> sums;
    clear_sums(sums);
    int stage = 0;
    for (int64_t key = 0; key < seen; key += N, stage ^= 1) {
      await_copies();
      __syncthreads();  // all have read what was there before, too
      if (key + N < seen) copy(key + N, stage ^ 1);
      if constexpr (masked) {
        mask.template fill<T>(a, masks, query, key);
        __syncthreads();
      }
      const int there = static_cast<int>(min(a.keys - key, int64_t{N}));
      const int past =
          a.causal ? static_cast<int>(max(min(own + a.past - key, int64_t{N}), int64_t{-rows_of_warp})) : N;
#pragma unroll
      for (int first = 0; first < N; first += step) {
        if (past + rows_of_warp <= first) break;
        RowSums<sets, step> scores, slopes;
        multiply_transposed(scores, of_q, keys[stage], first);
        multiply_transposed(slopes, of_g, values[stage], first);
        if constexpr (masked) {
          each_sum(scores, [&](float& score, int row, int column) {
            const float added = mask.added[warp * rows_of_warp + row][first + column];
            score = added == hidden_score ? hidden_score : fmaf(score, units.factor, added);
          });
        } else if (there < first + step || past < first + step - 1) {
          each_sum(scores, [&](float& score, int row, int column) {
            if (first + column >= there || first + column > row + past) score = hidden_score;
          });
        }
#pragma unroll
        for (int s = 0; s < sets; ++s)
#pragma unroll
          for (int n = 0; n < step / 8; ++n)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
              float factor = 1;
              if constexpr (masked)
                if (a.drops)
                  factor = mask.kept[warp * rows_of_warp + 16 * s + lane / 4 + i / 2 * 8]
                                    [first + 8 * n + lane % 4 * 2 + i % 2]
                               ? static_cast<float>(a.kept)
                               : 0.0f;
              find_slope(scores.at[s][n][i], slopes.at[s][n][i], masked ? 1.0f : units.factor,
                         terms[s][i / 2], factor);
            }
        add_product(sums, slopes, keys[stage], first);
      }
    }
    store_rows(dq + head * a.queries * a.width, sums, own, a.queries, a.width,
               [&](int, int) { return static_cast<float>(a.scale); });
  }
}

/// One block for each tile of keys, of each of their heads (y). Scores have their rows, and queries as
/// columns.
template <class T, int W, bool masked>
__global__ void __launch_bounds__(matrix_threads, KeyTiles<T, W, masked>::small ? 2 : 3)
    find_dk_dv_of_rows(BackwardOperands<T, float> o, T* __restrict__ dk, T* __restrict__ dv,
                       const __grid_constant__ DeviceAttention a) {
  using Tiles = KeyTiles<T, W, masked>;
  constexpr int N = Tiles::queries, step = Tiles::step;
  __shared__ RowTile<T, N, W> queries[2], gradients[2];
  __shared__ __align__(16) Several<float, 2> terms[2][N];
  __shared__ MaskTile<masked ? Tiles::rows : 1, masked ? N : 1, true> mask;
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t key = int64_t{blockIdx.x} * Tiles::rows, own = key + warp * 16, group = a.heads / a.key_heads;
  const ScoreUnits units(a, masked);
  // The first tile of queries of which one sees a key of the block.
  const int64_t begin = a.causal && key > a.past ? (key - a.past) / N * N : 0;
  for (int64_t key_head = blockIdx.y; key_head < a.batch * a.key_heads; key_head += gridDim.y) {
    const auto copy = [&](int64_t head, int64_t query, int stage) {
      copy_rows(queries[stage], o.q + head * a.queries * a.width, query, a.queries, a.width);
      copy_rows(gradients[stage], o.g + head * a.queries * a.value_width, query, a.queries, a.value_width);
      if (const int at = static_cast<int>(threadIdx.x); at < N) {
        const bool inside = query + at < a.queries;
        copy_async<8>(&terms[stage][at], o.terms + (inside ? head * a.queries + query + at : 0), inside);
      }
    };
    // Heads that a head of keys serves follow each other, through all of the batch.
    int64_t head = key_head * group, query = begin;
    const int64_t end = begin < a.queries ? head + group : head;
    __syncthreads();  // all have read what was there
    if (head < end) copy(head, query, 0);
    LeftRows<T, 1, W> of_k, of_v;
    load_left(of_k, o.k + key_head * a.keys * a.width, own, a.keys, a.width, units.negated);
    load_left(of_v, o.v + key_head * a.keys * a.value_width, own, a.keys, a.value_width);
    RowSums<1, W> sum_k, sum_v;
    clear_sums(sum_k);
    clear_sums(sum_v);
    for (int stage = 0; head < end; stage ^= 1) {
      const bool last = query + N >= a.queries;
      const int64_t next_head = last ? head + 1 : head, next_query = last ? begin : query + N;
      await_copies();
      __syncthreads();  // all have read what was there before, too
      if (next_head < end) copy(next_head, next_query, stage ^ 1);
      if constexpr (masked) {
        mask.template fill<T>(a, a.masks_of<T>(head), query, key);
        __syncthreads();
      }
      // The tile's query c sees the warp's key r if r <= c + past.
      const int past =
          a.causal ? static_cast<int>(max(min(query + a.past - own, int64_t{16}), int64_t{-N})) : 16;
#pragma unroll
      for (int first = 0; first < N; first += step) {
        if (past + first + step <= 0) continue;
        RowSums<1, step> scores, slopes;
        multiply_transposed(scores, of_k, queries[stage], first);
        multiply_transposed(slopes, of_v, gradients[stage], first);
        if constexpr (masked) {
          each_sum(scores, [&](float& score, int row, int column) {
            const float added = mask.added[warp * 16 + row][first + column];
            score = added == hidden_score ? hidden_score : fmaf(score, units.factor, added);
          });
        } else if (past + first < 15) {
          each_sum(scores, [&](float& score, int row, int column) {
            if (row > first + column + past) score = hidden_score;
          });
        }
#pragma unroll
        for (int n = 0; n < step / 8; ++n) {
          const int column = first + 8 * n + lane % 4 * 2;
          const auto both = *reinterpret_cast<const Several<Several<float, 2>, 2>*>(&terms[stage][column]);
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float factor = 1;
            if constexpr (masked)
              if (a.drops)
                factor = mask.kept[warp * 16 + lane / 4 + i / 2 * 8][column + i % 2]
                             ? static_cast<float>(a.kept)
                             : 0.0f;
            find_slope(scores.at[0][n][i], slopes.at[0][n][i], masked ? 1.0f : units.factor, both.at[i % 2],
                       factor);
          }
        }
        add_product(sum_v, scores, gradients[stage], first);
        add_product(sum_k, slopes, queries[stage], first);
      }
      head = next_head, query = next_query;
    }
    store_rows(dk + key_head * a.keys * a.width, sum_k, own, a.keys, a.width,
               [&](int, int) { return static_cast<float>(a.scale); });
    store_rows(dv + key_head * a.keys * a.value_width, sum_v, own, a.keys, a.value_width,
               [](int, int) { return 1.0f; });
  }
}

}  // namespace

template <class T>
void attend_back_by_matrices(const DeviceAttention& a, const BackwardOperands<T, float>& o, T* dq, T* dk,
                             T* dv) {
  of_width<T>(a, [&]<int W, bool masked> {
    launch(find_dq_of_rows<T, W, masked>,
           tiles_grid(a.queries, a.batch * a.heads, QueryTiles<T, W, masked>::rows, matrix_threads), o, dq,
           a);
    launch(find_dk_dv_of_rows<T, W, masked>,
           tiles_grid(a.keys, a.batch * a.key_heads, KeyTiles<T, W, masked>::rows, matrix_threads), o, dk, dv,
           a);
  });
}

template void attend_back_by_matrices(const DeviceAttention&, const BackwardOperands<Float16, float>&,
                                      Float16*, Float16*, Float16*);
template void attend_back_by_matrices(const DeviceAttention&, const BackwardOperands<BFloat16, float>&,
                                      BFloat16*, BFloat16*, BFloat16*);
template void attend_back_by_matrices(const DeviceAttention&, const BackwardOperands<float, float>&, float*,
                                      float*, float*);

}  // namespace espalier::cu
