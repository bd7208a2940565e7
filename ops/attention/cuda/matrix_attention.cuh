// Attention of 16-bit elements by tensor cores: Dao, "FlashAttention-2" (2023), algorithms 1 and 2.
//
// Each of the four warps of a block has 16 rows, whose operands and sums are in its registers; it walks over
// tiles of 64 columns, which shared memory holds. Weights are rounded to 16 bits before they are multiplied.
#pragma once
#include <limits>

#include "espalier/ops/attention/cuda/score_tile.cuh"
#include "espalier/ops/cuda/matrix_unit.cuh"

namespace espalier::cu {

inline constexpr int matrix_rows = 64, matrix_threads = 128;
/// The greatest width of heads.
inline constexpr int matrix_width = 128;

/// A tile of rows of at most W columns. Rows are a vector longer, so that they start in several banks.
template <class T, int W>
using RowTile = T[matrix_rows][W + 8];

/// Rows from `first` on; what is beyond the ends is 0. All threads of the block call it, and synchronize.
template <int W, class T>
__device__ void load_rows(RowTile<T, W>& to, const T* from, int64_t first, int64_t rows, int64_t width) {
  constexpr int vector = vector_width<T>, vectors = W / vector;
  const bool whole = width % vector == 0 && reinterpret_cast<uintptr_t>(from) % 16 == 0;
  for (int i = static_cast<int>(threadIdx.x); i < matrix_rows * vectors; i += matrix_threads) {
    const int row = i / vectors, column = i % vectors * vector;
    Several<T, vector> values;
#pragma unroll
    for (int k = 0; k < vector; ++k) values.at[k] = T(0.0f);
    if (first + row < rows) {
      const T* at = from + (first + row) * width + column;
      if (whole) {
        if (column < width) values = *reinterpret_cast<const Several<T, vector>*>(at);
      } else {
#pragma unroll
        for (int k = 0; k < vector; ++k)
          if (column + k < width) values.at[k] = at[k];
      }
    }
    *reinterpret_cast<Several<T, vector>*>(&to[row][column]) = values;
  }
}

/// The left operands of a warp's 16 rows.
template <int W>
using LeftRows = uint32_t[W / 16][4];
template <int W, class T>
__device__ void load_left(LeftRows<W>& to, const RowTile<T, W>& tile) {
  const int warp = static_cast<int>(threadIdx.x) / 32, lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < W / 16; ++k)
    load_matrices<false>(to[k], &tile[16 * warp + lane % 16][16 * k + lane / 16 * 8]);
}

/// Sums of 16 rows and N columns of a warp.
template <int N>
using RowSums = float[N / 8][4];
template <int N>
__device__ __forceinline__ void clear_sums(RowSums<N>& sums) {
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) sums[n][i] = 0;
}

/// sums = left · tileᵀ.
template <int W, class T>
__device__ __forceinline__ void multiply_transposed(RowSums<matrix_rows>& sums, const LeftRows<W>& left,
                                                    const RowTile<T, W>& tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  clear_sums<matrix_rows>(sums);
#pragma unroll
  for (int k = 0; k < W / 16; ++k)
#pragma unroll
    for (int n = 0; n < matrix_rows / 16; ++n) {
      uint32_t right[4];
      load_matrices<false>(right, &tile[16 * n + lane % 8 + lane / 16 * 8][16 * k + lane / 8 % 2 * 8]);
      multiply_add<T>(sums[2 * n], left[k], right[0], right[1]);
      multiply_add<T>(sums[2 * n + 1], left[k], right[2], right[3]);
    }
}

/// sums += values · tile, where the values, rounded, are a warp's 16 rows of 64 columns.
template <int W, class T>
__device__ __forceinline__ void add_product_of(RowSums<W>& sums, const RowSums<matrix_rows>& values,
                                               const RowTile<T, W>& tile) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
  for (int k = 0; k < matrix_rows / 16; ++k) {
    const float(&a)[4] = values[2 * k], (&b)[4] = values[2 * k + 1];
    const uint32_t left[4] = {pack<T>(a[0], a[1]), pack<T>(a[2], a[3]), pack<T>(b[0], b[1]),
                              pack<T>(b[2], b[3])};
#pragma unroll
    for (int n = 0; n < W / 16; ++n) {
      uint32_t right[4];
      load_matrices<true>(right, &tile[16 * k + lane % 16][16 * n + lane / 16 * 8]);
      multiply_add<T>(sums[2 * n], left, right[0], right[1]);
      multiply_add<T>(sums[2 * n + 1], left, right[2], right[3]);
    }
  }
}

/// Calls f(element, row, column) for the elements of a warp's sums, with their places in the block's.
template <int N, class F>
__device__ __forceinline__ void each_sum(RowSums<N>& sums, F&& f) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
#pragma unroll
  for (int n = 0; n < N / 8; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) f(sums[n][i], first + i / 2 * 8, 8 * n + lane % 4 * 2 + i % 2);
}

/// Writes factors of rows (the lane's two) times the sums.
template <int W, class T>
__device__ void store_rows(T* to, RowSums<W>& sums, int64_t first, int64_t rows, int64_t width,
                           const float (&factors)[2]) {
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const bool pairs = width % 2 == 0 && reinterpret_cast<uintptr_t>(to) % 4 == 0;
#pragma unroll
  for (int n = 0; n < W / 8; ++n)
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      const int64_t row = first + 16 * warp + lane / 4 + 8 * lower, column = 8 * n + lane % 4 * 2;
      if (row >= rows) continue;
      T* at = to + row * width + column;
      const float low = sums[n][2 * lower] * factors[lower], high = sums[n][2 * lower + 1] * factors[lower];
      if (pairs) {
        if (column < width) *reinterpret_cast<uint32_t*>(at) = pack<T>(low, high);
      } else {
        if (column < width) at[0] = static_cast<T>(low);
        if (column + 1 < width) at[1] = static_cast<T>(high);
      }
    }
}

inline constexpr float log2_of_e = 1.44269504088896340736f, log_of_2 = 0.693147180559945309417f;
/// 2 to the power of x, with a relative error of 2^-22; 0 for −∞.
__device__ __forceinline__ float exp2_of(float x) {
#ifdef ESPALIER_EMULATED_CUDA
  return __builtin_exp2f(x);
#else
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#endif
}

/// What few attentions need for each weight: called, so that kernels stay short.
template <class T>
__device__ __attribute__((noinline)) float masked_score(const DeviceAttention& a, int64_t head, int64_t query,
                                                        int64_t key, float product) {
  return a.masked<T>(head, query, key, product);
}
static __device__ __attribute__((noinline)) float dropout_factor(const DeviceAttention& a, int64_t head,
                                                                 int64_t query, int64_t key) {
  return a.factor<float>(head, query, key);
}

/// A tile of queries and keys. `plain`: without masks and dropout, whose calls, one for each weight, would
/// make kernels too long for the cache of instructions.
template <bool plain>
struct ScoreTile {
  int64_t head, query, key;
  int queries, keys;  ///< how many of them there are
  int past;           ///< a query sees as many keys more than its own number has predecessors, here

  __device__ ScoreTile(const DeviceAttention& a, int64_t head, int64_t query, int64_t key)
      : head(head),
        query(query),
        key(key),
        queries(rows_in_tile(a.queries - query)),
        keys(rows_in_tile(a.keys - key)),
        past(a.causal ? static_cast<int>(
                            min(max(query + a.past - key, int64_t{-matrix_rows}), int64_t{matrix_rows}))
                      : matrix_rows) {}

  static __device__ int rows_in_tile(int64_t rows) {
    return static_cast<int>(min(rows, int64_t{matrix_rows}));
  }
  __device__ bool sees(int at_query, int at_key) const {
    return at_query < queries && at_key < keys && at_key <= at_query + past;
  }
  /// Whether every query sees every key of a whole tile, without masks.
  __device__ bool whole() const {
    return plain && queries == matrix_rows && keys == matrix_rows && past >= matrix_rows - 1;
  }
  /// The score of a query and a key of the tile, by what their product is, times log2(e); −∞ outside.
  template <class T>
  __device__ float score(const DeviceAttention& a, int at_query, int at_key, float product) const {
    const float scaled = product * static_cast<float>(a.scale);
    constexpr float hidden = -std::numeric_limits<float>::infinity();
    if constexpr (plain) return sees(at_query, at_key) ? scaled * log2_of_e : hidden;
    if (!sees(at_query, at_key)) return hidden;
    return masked_score<T>(a, head, query + at_query, key + at_key, scaled) * log2_of_e;
  }
  __device__ float factor(const DeviceAttention& a, int at_query, int at_key) const {
    if constexpr (plain) return 1.0f;
    return a.drops ? dropout_factor(a, head, query + at_query, key + at_key) : 1.0f;
  }
};

/// One block for each tile of queries (x) of each head (y).
template <class T, int W, bool plain>
__global__ void __launch_bounds__(matrix_threads)
    attend_by_matrices(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                       T* __restrict__ out, float* __restrict__ log_sums,
                       const __grid_constant__ DeviceAttention a) {
  __shared__ __align__(16) RowTile<T, W> keys, values;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int64_t query = int64_t{blockIdx.x} * matrix_rows;
  for (int64_t head = blockIdx.y; head < a.batch * a.heads; head += gridDim.y) {
    const int64_t key_head = a.key_head(head);
    LeftRows<W> left;
    __syncthreads();
    load_rows<W>(keys, q + head * a.queries * a.width, query, a.queries, a.width);
    __syncthreads();
    load_left<W>(left, keys);
    RowSums<W> sum;
    clear_sums<W>(sum);
    float largest[2] = {-std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()};
    float total[2] = {0, 0};
    const int64_t seen = a.seen(query + matrix_rows);
    for (int64_t key = 0; key < seen; key += matrix_rows) {
      __syncthreads();  // all have read what was there
      load_rows<W>(keys, k + key_head * a.keys * a.width, key, a.keys, a.width);
      load_rows<W>(values, v + key_head * a.keys * a.value_width, key, a.keys, a.value_width);
      __syncthreads();
      RowSums<matrix_rows> scores;
      multiply_transposed<W>(scores, left, keys);
      float best[2] = {largest[0], largest[1]};
      const ScoreTile<plain> tile(a, head, query, key);
      if (tile.whole())
        each_sum<matrix_rows>(
            scores, [&](float& score, int, int) { score *= static_cast<float>(a.scale) * log2_of_e; });
      else
        each_sum<matrix_rows>(scores, [&](float& score, int row, int column) {
          score = tile.template score<T>(a, row, column, score);
        });
#pragma unroll
      for (int n = 0; n < matrix_rows / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) best[i / 2] = scalar::Maximum()(best[i / 2], scores[n][i]);
      float part[2] = {0, 0}, shift[2];
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) {
        best[lower] = fold_lanes(best[lower], 4, scalar::Maximum());
        // A query that has seen nothing yet has no largest score to subtract.
        shift[lower] = best[lower] == -std::numeric_limits<float>::infinity() ? 0.0f : best[lower];
        const float shrink = exp2_of(largest[lower] - shift[lower]);
        largest[lower] = best[lower];
        total[lower] *= shrink;
#pragma unroll
        for (int n = 0; n < W / 8; ++n) sum[n][2 * lower] *= shrink, sum[n][2 * lower + 1] *= shrink;
      }
#pragma unroll
      for (int n = 0; n < matrix_rows / 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          scores[n][i] = exp2_of(scores[n][i] - shift[i / 2]);
          part[i / 2] += scores[n][i];
        }
#pragma unroll
      for (int lower = 0; lower < 2; ++lower) total[lower] += fold_lanes(part[lower], 4, scalar::Add());
      if (!plain && a.drops)
        each_sum<matrix_rows>(
            scores, [&](float& weight, int row, int column) { weight *= tile.factor(a, row, column); });
      add_product_of<W, T>(sum, scores, values);
    }
    float factors[2];
#pragma unroll
    for (int lower = 0; lower < 2; ++lower) {
      const bool none = total[lower] == 0;
      factors[lower] = none ? 0.0f : 1 / total[lower];
      const int64_t at = query + static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4 + 8 * lower;
      if (lane % 4 == 0 && at < a.queries)
        log_sums[head * a.queries + at] = none ? std::numeric_limits<float>::infinity()
                                               : largest[lower] * log_of_2 + scalar::Log()(total[lower]);
    }
    store_rows<W>(out + head * a.queries * a.value_width, sum, query, a.queries, a.value_width, factors);
  }
}

/// The operands of the gradients.
template <class T, class C>
struct BackwardOperands {
  const T *g, *q, *k, *v;
  const C *log_sums, *products;
};

/// Weights with their factors, and the gradients of the scores, of tiles of queries and keys. `by_keys`: rows
/// are keys, columns are queries; else the other way round. `scores` and `slopes` are q · k and g · v.
template <bool by_keys, bool plain, class T>
__device__ __forceinline__ void find_row_slopes(const BackwardOperands<T, float>& o, const DeviceAttention& a,
                                                int64_t head, int64_t query, int64_t key,
                                                RowSums<matrix_rows>& scores, RowSums<matrix_rows>& slopes) {
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int first = static_cast<int>(threadIdx.x) / 32 * 16 + lane / 4;
  const ScoreTile<plain> tile(a, head, query, key);
  float log_sum[2], product[2];
#pragma unroll
  for (int n = 0; n < matrix_rows / 8; ++n) {
    if (by_keys || n == 0)
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = by_keys ? 8 * n + lane % 4 * 2 + i : first + 8 * i;
        const int64_t place = head * a.queries + query + at;
        log_sum[i] = at < tile.queries ? o.log_sums[place] * log2_of_e : 0.0f;
        product[i] = at < tile.queries ? o.products[place] : 0.0f;
      }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int row = first + i / 2 * 8, column = 8 * n + lane % 4 * 2 + i % 2;
      const int at_query = by_keys ? column : row, at_key = by_keys ? row : column;
      const int of_query = by_keys ? i % 2 : i / 2;
      const float score = tile.whole() ? scores[n][i] * (static_cast<float>(a.scale) * log2_of_e)
                                       : tile.template score<T>(a, at_query, at_key, scores[n][i]);
      const float weight = exp2_of(score - log_sum[of_query]);
      const float factor = tile.factor(a, at_query, at_key);
      slopes[n][i] = weight * (slopes[n][i] * factor - product[of_query]) * static_cast<float>(a.scale);
      scores[n][i] = weight * factor;
    }
  }
}

/// One block for each tile of queries (x) of each head (y).
template <class T, int W, bool plain>
__global__ void __launch_bounds__(matrix_threads)
    find_dq_by_matrices(BackwardOperands<T, float> o, T* __restrict__ dq,
                        const __grid_constant__ DeviceAttention a) {
  __shared__ __align__(16) RowTile<T, W> keys, values;
  const int64_t query = int64_t{blockIdx.x} * matrix_rows;
  for (int64_t head = blockIdx.y; head < a.batch * a.heads; head += gridDim.y) {
    const int64_t key_head = a.key_head(head);
    LeftRows<W> of_q, of_g;
    __syncthreads();
    load_rows<W>(keys, o.q + head * a.queries * a.width, query, a.queries, a.width);
    load_rows<W>(values, o.g + head * a.queries * a.value_width, query, a.queries, a.value_width);
    __syncthreads();
    load_left<W>(of_q, keys);
    load_left<W>(of_g, values);
    RowSums<W> sum;
    clear_sums<W>(sum);
    const int64_t seen = a.seen(query + matrix_rows);
    for (int64_t key = 0; key < seen; key += matrix_rows) {
      __syncthreads();  // all have read what was there
      load_rows<W>(keys, o.k + key_head * a.keys * a.width, key, a.keys, a.width);
      load_rows<W>(values, o.v + key_head * a.keys * a.value_width, key, a.keys, a.value_width);
      __syncthreads();
      RowSums<matrix_rows> scores, slopes;
      multiply_transposed<W>(scores, of_q, keys);
      multiply_transposed<W>(slopes, of_g, values);
      find_row_slopes<false, plain, T>(o, a, head, query, key, scores, slopes);
      add_product_of<W, T>(sum, slopes, keys);
    }
    store_rows<W>(dq + head * a.queries * a.width, sum, query, a.queries, a.width, {1, 1});
  }
}

/// One block for each tile of keys (x) of each of their heads (y).
template <class T, int W, bool plain>
__global__ void __launch_bounds__(matrix_threads)
    find_dk_dv_by_matrices(BackwardOperands<T, float> o, T* __restrict__ dk, T* __restrict__ dv,
                           const __grid_constant__ DeviceAttention a) {
  __shared__ __align__(16) RowTile<T, W> queries, gradients;
  const int64_t key = int64_t{blockIdx.x} * matrix_rows, group = a.heads / a.key_heads;
  for (int64_t key_head = blockIdx.y; key_head < a.batch * a.key_heads; key_head += gridDim.y) {
    LeftRows<W> of_k, of_v;
    __syncthreads();
    load_rows<W>(queries, o.k + key_head * a.keys * a.width, key, a.keys, a.width);
    load_rows<W>(gradients, o.v + key_head * a.keys * a.value_width, key, a.keys, a.value_width);
    __syncthreads();
    load_left<W>(of_k, queries);
    load_left<W>(of_v, gradients);
    RowSums<W> sum_k, sum_v;
    clear_sums<W>(sum_k);
    clear_sums<W>(sum_v);
    // Heads that a head of keys serves follow each other, through all of the batch.
    for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head)
      for (int64_t query = 0; query < a.queries; query += matrix_rows) {
        if (a.seen(query + matrix_rows) <= key) continue;
        __syncthreads();  // all have read what was there
        load_rows<W>(queries, o.q + head * a.queries * a.width, query, a.queries, a.width);
        load_rows<W>(gradients, o.g + head * a.queries * a.value_width, query, a.queries, a.value_width);
        __syncthreads();
        RowSums<matrix_rows> scores, slopes;
        multiply_transposed<W>(scores, of_k, queries);
        multiply_transposed<W>(slopes, of_v, gradients);
        find_row_slopes<true, plain, T>(o, a, head, query, key, scores, slopes);
        add_product_of<W, T>(sum_v, scores, gradients);
        add_product_of<W, T>(sum_k, slopes, queries);
      }
    store_rows<W>(dk + key_head * a.keys * a.width, sum_k, key, a.keys, a.width, {1, 1});
    store_rows<W>(dv + key_head * a.keys * a.value_width, sum_v, key, a.keys, a.value_width, {1, 1});
  }
}

/// Calls f with the compile-time width that has room for the heads', and whether there are neither masks nor
/// dropout, if their elements are of 16 bits and the device multiplies such matrices. Returns whether it did.
template <class T, class F>
bool by_matrices(const DeviceAttention& a, F&& f) {
  if constexpr (sizeof(T) == 2) {
    const int64_t width = std::max(a.width, a.value_width);
    if (width > matrix_width || limits().architecture < least_capability_of_matrix_unit) return false;
    const bool plain = !a.mask && !a.key_mask && !a.drops;
    const auto of_width = [&]<int W> {
      if (plain)
        f.template operator()<W, true>();
      else
        f.template operator()<W, false>();
    };
    if (width <= 32)
      of_width.template operator()<32>();
    else if (width <= 64)
      of_width.template operator()<64>();
    else
      of_width.template operator()<128>();
    return true;
  }
  return false;
}

}  // namespace espalier::cu
