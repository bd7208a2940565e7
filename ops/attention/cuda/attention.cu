// Attention on a GPU, of 16-bit elements, and of floats where TF32 is allowed, by tensor cores.
#include <optional>

#include "espalier/ops/attention/cuda/matrix_attention.h"
#include "espalier/ops/attention/cuda/operands.cuh"
#include "espalier/ops/attention/cuda/real_attention.h"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

namespace {

/// The terms of each query. Eight lanes have a row, of which they read V elements at once.
template <class T, class C, int V>
__global__ void __launch_bounds__(threads_in_block)
    find_terms(const T* __restrict__ g, const T* __restrict__ y, const C* __restrict__ log_sums,
               Several<C, 2>* __restrict__ terms, int64_t rows, int64_t width) {
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
    if (lane == 0 && row < rows) terms[row] = {{log_sums[row] * score_unit<C>, sum}};
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
                  log_sums = call.outputs[1], precision = matmul_precision()](RandomStream) mutable {
      const DeviceAttention a = o.refresh();
      auto* to = static_cast<T*>(out->address());
      auto* sums = static_cast<C*>(log_sums->address());
      if constexpr (sizeof(T) <= 4)
        if (by_matrices<T>(a, precision)) {
          attend_by_matrices(a, o.template q<T>(), o.template k<T>(), o.template v<T>(), to, sums);
          return;
        }
      attend_by_reals(a, o.template q<T>(), o.template k<T>(), o.template v<T>(), to, sums);
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
                  outputs = call.outputs, precision = matmul_precision()](RandomStream) mutable {
      const DeviceAttention a = o.refresh();
      g.refresh();
      y.refresh();
      sums.refresh();
      const auto *own_g = static_cast<const T*>(g.address()), *own_y = static_cast<const T*>(y.address());
      auto* of_rows = static_cast<Several<C, 2>*>(terms.address());
      const BackwardOperands<T, C> all{own_g, o.template q<T>(), o.template k<T>(), o.template v<T>(),
                                       of_rows};
      const int64_t rows = a.batch * a.heads * a.queries;
      auto *dq = static_cast<T*>(outputs[0]->address()), *dk = static_cast<T*>(outputs[1]->address()),
           *dv = static_cast<T*>(outputs[2]->address());
      const bool vectors = in_vectors<T>(own_g, a.value_width) && in_vectors<T>(own_y, a.value_width);
      launch(vectors ? find_terms<T, C, vector_width<T>> : find_terms<T, C, 1>, grid_for(rows * 8), own_g,
             own_y, static_cast<const C*>(sums.address()), of_rows, rows, a.value_width);
      if constexpr (sizeof(T) <= 4)
        if (by_matrices<T>(a, precision)) {
          attend_back_by_matrices(a, all, dq, dk, dv);
          return;
        }
      attend_back_by_reals(a, all, dq, dk, dv);
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
