// Folds many contiguous tensors by a binary functor, in one pass over memory.
#pragma once
#include "espalier/ops/elementwise/cuda/pointwise_kernels.cuh"

namespace espalier::cu {

/// Folds from left to right: `units` vectors of V elements, then the rest of the n elements one by one.
template <class F, int V, class T>
__global__ void __launch_bounds__(threads_in_block)
    fold_kernel(const FoldTerms terms, T* out, int64_t units, int64_t n) {
  using C = compute_t<T>;
  for (int64_t unit = grid_thread(); unit < units; unit += grid_threads()) {
    Vector<T, V> term[FoldTerms::most];
#pragma unroll
    for (int k = 0; k < FoldTerms::most; ++k)
      if (k < terms.count) term[k] = read_vector<V>(static_cast<const T*>(terms.data[k]) + unit * V);
    Vector<T, V> result;
#pragma unroll
    for (int i = 0; i < V; ++i) {
      C folded = static_cast<C>(term[0].element[i]);
#pragma unroll
      for (int k = 1; k < FoldTerms::most; ++k)
        if (k < terms.count) folded = F()(folded, static_cast<C>(term[k].element[i]));
      result.element[i] = static_cast<T>(folded);
    }
    write_vector(out + unit * V, result);
  }
  for (int64_t i = units * V + grid_thread(); i < n; i += grid_threads()) {
    C folded = static_cast<C>(static_cast<const T*>(terms.data[0])[i]);
#pragma unroll
    for (int k = 1; k < FoldTerms::most; ++k)
      if (k < terms.count) folded = F()(folded, static_cast<C>(static_cast<const T*>(terms.data[k])[i]));
    out[i] = static_cast<T>(folded);
  }
}

template <class F, class T>
void launch_fold(const FoldTerms& terms, void* out, int64_t n) {
  constexpr int V = vector_bytes / sizeof(T);
  uintptr_t places = reinterpret_cast<uintptr_t>(out);
  for (int k = 0; k < terms.count; ++k) places |= reinterpret_cast<uintptr_t>(terms.data[k]);
  const int64_t units = places % vector_bytes == 0 ? n / V : 0;
  launch(fold_kernel<F, V, T>, grid_for(units ? units : n), terms, static_cast<T*>(out), units, n);
}

template <class F, class... T>
void add_fold(PointwiseTable& table, Types<T...>) {
  PointwiseFunction& f = table[type_name<F>()];
  ((f.template of<T>().fold = launch_fold<F, T>), ...);
}

}  // namespace espalier::cu
