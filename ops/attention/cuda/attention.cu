// Attention on a GPU: of 16-bit elements by tensor cores, else by tiles of scores in registers: Dao,
// "FlashAttention-2" (2023), algorithms 1 and 2.
#include <optional>

#include "espalier/ops/attention/cuda/matrix_attention.h"
#include "espalier/ops/attention/cuda/operands.cuh"
#include "espalier/ops/attention/cuda/score_tile.cuh"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

namespace {

/// The products of a tile become scores, −∞ outside of the matrix.
template <class T, class C>
__device__ void mask_square(const DeviceAttention& a, int64_t head, int64_t query, int64_t key,
                            Square<C>& square) {
  const int line = static_cast<int>(threadIdx.x) / tile_lanes<C>,
            lane = static_cast<int>(threadIdx.x) % tile_lanes<C>;
  for (int i = 0; i < 4; ++i)
    for (int j = 0; j < 4; ++j) {
      const int64_t q = query + 4 * line + i, k = key + 4 * lane + j;
      square[i][j] = q < a.queries && k < a.keys
                         ? a.masked<T>(a.masks_of<T>(head), q, k, square[i][j] * static_cast<C>(a.scale))
                         : -std::numeric_limits<C>::infinity();
    }
}

template <class C>
__device__ C exponential(C x, C shift) {
  return x == -std::numeric_limits<C>::infinity() ? C(0) : scalar::Exp()(x - shift);
}

/// One block for each tile of queries (x) of each head (y), and each tile of columns of the values (z).
template <class T, class C>
__global__ void __launch_bounds__(tile_threads<C>)
    attend_kernel(const T* __restrict__ q, const T* __restrict__ k, const T* __restrict__ v,
                  T* __restrict__ out, C* __restrict__ log_sums, const __grid_constant__ DeviceAttention a) {
  constexpr int tile = score_tile<C>, lanes = tile_lanes<C>;
  __shared__ TileMemory<C> memory;
  const int line = static_cast<int>(threadIdx.x) / lanes, lane = static_cast<int>(threadIdx.x) % lanes;
  const int64_t query = int64_t{blockIdx.x} * tile, column = int64_t{blockIdx.z} * tile;
  for (int64_t head = blockIdx.y; head < a.batch * a.heads; head += gridDim.y) {
    const int64_t key_head = a.key_head(head);
    const T *own_k = k + key_head * a.keys * a.width, *own_v = v + key_head * a.keys * a.value_width;
    Square<C> sum;
    clear(sum);
    C largest[4], total[4];
    for (int i = 0; i < 4; ++i) {
      largest[i] = -std::numeric_limits<C>::infinity();
      total[i] = 0;
    }
    const int64_t seen = a.seen(query + tile);
    for (int64_t key = 0; key < seen; key += tile) {
      Square<C> scores;
      multiply_rows(memory, q + head * a.queries * a.width, query, a.queries, own_k, key, a.keys, a.width,
                    scores);
      mask_square<T>(a, head, query, key, scores);
      for (int i = 0; i < 4; ++i) {
        C best = largest[i];
        for (int j = 0; j < 4; ++j) best = scalar::Maximum()(best, scores[i][j]);
        best = fold_lanes(best, lanes, scalar::Maximum());
        const C shrink = exponential(largest[i], best);
        C part = 0;
        for (int j = 0; j < 4; ++j) {
          scores[i][j] = exponential(scores[i][j], best);
          part += scores[i][j];
          sum[i][j] *= shrink;
        }
        total[i] = total[i] * shrink + fold_lanes(part, lanes, scalar::Add());
        largest[i] = best;
      }
      if (a.drops)
        for (int i = 0; i < 4; ++i)
          for (int j = 0; j < 4; ++j)
            scores[i][j] *= a.factor<C>(a.masks_of<T>(head), query + 4 * line + i, key + 4 * lane + j);
      add_product<false>(memory, scores, own_v, key, a.keys, column, a.value_width, sum);
    }
    for (int i = 0; i < 4; ++i) {
      const int64_t at = query + 4 * line + i, row = head * a.queries + at;
      if (at >= a.queries) continue;
      const bool none = total[i] == 0;
      const C factor = none ? C(0) : 1 / total[i];
      for (int j = 0; j < 4; ++j)
        if (const int64_t c = column + 4 * lane + j; c < a.value_width)
          out[row * a.value_width + c] = static_cast<T>(sum[i][j] * factor);
      if (lane == 0 && column == 0)
        log_sums[row] = none ? std::numeric_limits<C>::infinity() : largest[i] + scalar::Log()(total[i]);
    }
  }
}

/// The terms of each query, of logarithms in a unit of 1 / `unit`. Eight lanes have a row, of which they read
/// V elements at once.
template <class T, class C, int V>
__global__ void __launch_bounds__(threads_in_block)
    find_terms(const T* __restrict__ g, const T* __restrict__ y, const C* __restrict__ log_sums,
               Several<C, 2>* __restrict__ terms, int64_t rows, int64_t width, C unit) {
  constexpr int lanes = 8;
  const int lane = static_cast<int>(threadIdx.x) % lanes;
  // All lanes of a warp have as many turns.
  for (int64_t first = grid_thread() / 32 * (32 / lanes); first < rows; first += grid_threads() / lanes) {
    const int64_t row = first + static_cast<int>(threadIdx.x) % 32 / lanes;
    C sum = 0;
    if (row < rows)
      for (int64_t i = lane * V; i < width; i += lanes * V) {
        const auto a = *reinterpret_cast<const Several<T, V>*>(g + row * width + i),
                   b = *reinterpret_cast<const Several<T, V>*>(y + row * width + i);
#pragma unroll
        for (int k = 0; k < V; ++k) sum += static_cast<C>(a.at[k]) * static_cast<C>(b.at[k]);
      }
    sum = fold_lanes(sum, lanes, scalar::Add());
    if (lane == 0 && row < rows) terms[row] = {{log_sums[row] * unit, sum}};
  }
}

/// A tile of weights with their factors, and of the gradients of scores, scaled.
template <class T, class C>
__device__ void find_slopes(TileMemory<C>& memory, const BackwardOperands<T, C>& o, const DeviceAttention& a,
                            int64_t head, int64_t query, int64_t key, Square<C>& weights, Square<C>& slopes) {
  const int line = static_cast<int>(threadIdx.x) / tile_lanes<C>,
            lane = static_cast<int>(threadIdx.x) % tile_lanes<C>;
  const int64_t key_head = a.key_head(head);
  multiply_rows(memory, o.q + head * a.queries * a.width, query, a.queries, o.k + key_head * a.keys * a.width,
                key, a.keys, a.width, weights);
  mask_square<T>(a, head, query, key, weights);
  multiply_rows(memory, o.g + head * a.queries * a.value_width, query, a.queries,
                o.v + key_head * a.keys * a.value_width, key, a.keys, a.value_width, slopes);
  for (int i = 0; i < 4; ++i) {
    const int64_t at = query + 4 * line + i, row = head * a.queries + at;
    const bool inside = at < a.queries;
    const Several<C, 2> terms = inside ? o.terms[row] : Several<C, 2>{};
    const C log_sum = terms.at[0], product = terms.at[1];
    for (int j = 0; j < 4; ++j) {
      const C weight = exponential(weights[i][j], log_sum);
      const C factor = a.factor<C>(a.masks_of<T>(head), at, key + 4 * lane + j);
      slopes[i][j] = weight * (slopes[i][j] * factor - product) * static_cast<C>(a.scale);
      weights[i][j] = weight * factor;
    }
  }
}

/// One block for each tile of queries (x) of each head (y), and each tile of their columns (z).
template <class T, class C>
__global__ void __launch_bounds__(tile_threads<C>)
    find_dq(BackwardOperands<T, C> o, T* __restrict__ dq, const __grid_constant__ DeviceAttention a) {
  constexpr int tile = score_tile<C>;
  __shared__ TileMemory<C> memory;
  const int line = static_cast<int>(threadIdx.x) / tile_lanes<C>,
            lane = static_cast<int>(threadIdx.x) % tile_lanes<C>;
  const int64_t query = int64_t{blockIdx.x} * tile, column = int64_t{blockIdx.z} * tile;
  for (int64_t head = blockIdx.y; head < a.batch * a.heads; head += gridDim.y) {
    Square<C> sum;
    clear(sum);
    const int64_t seen = a.seen(query + tile);
    for (int64_t key = 0; key < seen; key += tile) {
      Square<C> weights, slopes;
      find_slopes(memory, o, a, head, query, key, weights, slopes);
      add_product<false>(memory, slopes, o.k + a.key_head(head) * a.keys * a.width, key, a.keys, column,
                         a.width, sum);
    }
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j)
        if (const int64_t at = query + 4 * line + i, c = column + 4 * lane + j; at < a.queries && c < a.width)
          dq[(head * a.queries + at) * a.width + c] = static_cast<T>(sum[i][j]);
  }
}

/// One block for each tile of keys (x) of each of their heads (y), and each tile of columns (z).
template <class T, class C>
__global__ void __launch_bounds__(tile_threads<C>)
    find_dk_dv(BackwardOperands<T, C> o, T* __restrict__ dk, T* __restrict__ dv,
               const __grid_constant__ DeviceAttention a) {
  constexpr int tile = score_tile<C>;
  __shared__ TileMemory<C> memory;
  const int line = static_cast<int>(threadIdx.x) / tile_lanes<C>,
            lane = static_cast<int>(threadIdx.x) % tile_lanes<C>;
  const int64_t key = int64_t{blockIdx.x} * tile, column = int64_t{blockIdx.z} * tile;
  const int64_t group = a.heads / a.key_heads;
  for (int64_t key_head = blockIdx.y; key_head < a.batch * a.key_heads; key_head += gridDim.y) {
    Square<C> of_k, of_v;
    clear(of_k);
    clear(of_v);
    // Heads that a head of keys serves follow each other, through all of the batch.
    for (int64_t head = key_head * group; head < (key_head + 1) * group; ++head)
      for (int64_t query = 0; query < a.queries; query += tile) {
        if (a.seen(query + tile) <= key) continue;
        Square<C> weights, slopes;
        find_slopes(memory, o, a, head, query, key, weights, slopes);
        add_product<true>(memory, weights, o.g + head * a.queries * a.value_width, query, a.queries, column,
                          a.value_width, of_v);
        add_product<true>(memory, slopes, o.q + head * a.queries * a.width, query, a.queries, column, a.width,
                          of_k);
      }
    for (int i = 0; i < 4; ++i)
      for (int j = 0; j < 4; ++j) {
        const int64_t at = key + 4 * line + i, c = column + 4 * lane + j, row = key_head * a.keys + at;
        if (at >= a.keys) continue;
        if (c < a.width) dk[row * a.width + c] = static_cast<T>(of_k[i][j]);
        if (c < a.value_width) dv[row * a.value_width + c] = static_cast<T>(of_v[i][j]);
      }
  }
}

template <class F>
Bound for_real(DType dtype, F&& f) {
  Bound result;
  visit_elements(dtype, [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>) result = f(TypeTag<T>{});
  });
  return result;
}

Bound bind_attention(const Op& op, const KernelCall& call) {
  if (call.outputs[1]->elements() == 0) return bound([](RandomStream) {});
  return for_real(call.outputs[0]->dtype(), [&]<class T>(TypeTag<T>) {
    using C = Computed<T>;
    return bound([o = DeviceOperands(AttentionForm::of(op), call, 0, 3), out = call.outputs[0],
                  log_sums = call.outputs[1]](RandomStream) mutable {
      const DeviceAttention a = o.refresh();
      const int64_t heads = a.batch * a.heads;
      auto* to = static_cast<T*>(out->address());
      auto* sums = static_cast<C*>(log_sums->address());
      if constexpr (sizeof(T) == 2)
        if (by_matrices(a)) {
          attend_by_matrices(a, o.template q<T>(), o.template k<T>(), o.template v<T>(), to, sums);
          return;
        }
      launch(attend_kernel<T, C>, tiles_grid(a.queries, heads, score_tile<C>, tile_threads<C>, a.value_width),
             o.template q<T>(), o.template k<T>(), o.template v<T>(), to, sums, a);
    });
  });
}

Bound bind_attention_gradient(const Op& op, const KernelCall& call) {
  const Tensor& log_sums = *call.inputs[5];
  if (log_sums.elements() == 0)
    return bound([outputs = call.outputs](RandomStream) {
      for (Tensor* output : outputs) zero_elements(*output);
    });
  return for_real(call.outputs[0]->dtype(), [&]<class T>(TypeTag<T>) {
    using C = Computed<T>;
    return bound([o = DeviceOperands(AttentionForm::of(op), call, 1, 6), g = ContiguousInput(*call.inputs[0]),
                  y = ContiguousInput(*call.inputs[4]), sums = ContiguousInput(log_sums),
                  terms = Tensor({log_sums.elements(), 2}, log_sums.dtype(), log_sums.device()),
                  outputs = call.outputs](RandomStream) mutable {
      const DeviceAttention a = o.refresh();
      g.refresh();
      y.refresh();
      sums.refresh();
      const auto *own_g = static_cast<const T*>(g.address()), *own_y = static_cast<const T*>(y.address());
      auto* of_rows = static_cast<Several<C, 2>*>(terms.address());
      const BackwardOperands<T, C> all{own_g, o.template q<T>(), o.template k<T>(), o.template v<T>(),
                                       of_rows};
      const int64_t heads = a.batch * a.heads, key_heads = a.batch * a.key_heads, rows = heads * a.queries;
      auto *dq = static_cast<T*>(outputs[0]->address()), *dk = static_cast<T*>(outputs[1]->address()),
           *dv = static_cast<T*>(outputs[2]->address());
      const bool matrices = sizeof(T) == 2 && by_matrices(a);
      const bool vectors = in_vectors<T>(own_g, a.value_width) && in_vectors<T>(own_y, a.value_width);
      launch(vectors ? find_terms<T, C, vector_width<T>> : find_terms<T, C, 1>, grid_for(rows * 8), own_g,
             own_y, static_cast<const C*>(sums.address()), of_rows, rows, a.value_width,
             matrices ? static_cast<C>(log2_of_e) : C(1));
      if constexpr (sizeof(T) == 2)
        if (matrices) {
          attend_back_by_matrices(a, all, dq, dk, dv);
          return;
        }
      launch(find_dq<T, C>, tiles_grid(a.queries, heads, score_tile<C>, tile_threads<C>, a.width), all, dq,
             a);
      launch(find_dk_dv<T, C>,
             tiles_grid(a.keys, key_heads, score_tile<C>, tile_threads<C>, std::max(a.width, a.value_width)),
             all, dk, dv, a);
    });
  });
}

}  // namespace

void add_attention_kernels(KernelRegistry& kernels) {
  kernels.add("attention", bind_attention);
  kernels.add("attention_gradient", bind_attention_gradient);
  add_attention_matrix_kernels(kernels);
}

}  // namespace espalier::cu
