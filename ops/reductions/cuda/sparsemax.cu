// Sparsemax along the last axis: see ops/reductions/simplex.cpp.
#include <algorithm>
#include <limits>

#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

namespace {

/// A block for each row. The output may be the input: each thread reads and writes elements of its own.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    sparsemax_rows(const T* in, int64_t rows, int64_t n, T* out) {
  using C = Computed<T>;
  for (int64_t r = blockIdx.x; r < rows; r += gridDim.x) {
    const T* row = in + r * n;
    C largest = -std::numeric_limits<C>::infinity();
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
      largest = scalar::Maximum()(largest, static_cast<C>(row[i]));
    largest = fold_block(largest, scalar::Maximum());
    C bound(-1);
    for (int64_t before = -1;;) {
      C total(0);
      int64_t count = 0;
      for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
        const C x = static_cast<C>(row[i]) - largest;
        if (x > bound) total += x, ++count;
      }
      total = fold_block(total, scalar::Add());
      count = fold_block(count, scalar::Add());
      if (count == before) break;  // the same for all threads
      before = count;
      bound = max(bound, (total - C(1)) / static_cast<C>(count));
    }
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
      out[r * n + i] = static_cast<T>(scalar::Relu()(static_cast<C>(row[i]) - largest - bound));
  }
}

Bound bind_sparsemax(const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const int64_t n = out.shape()[-1], rows = out.elements() / n;
  const auto block = static_cast<unsigned>(std::clamp<int64_t>(power_from(n / 4), 32, threads_in_block));
  const Grid grid{dim3(static_cast<unsigned>(std::min<int64_t>(rows, 1 << 30))), dim3(block)};
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>)
      result = bound([=, to = static_cast<T*>(out.address()),
                      x = ContiguousInput(*call.inputs[0])](RandomStream) mutable {
        x.refresh();
        launch(sparsemax_rows<T>, grid, static_cast<const T*>(x.address()), rows, n, to);
      });
  });
  return result;
}

}  // namespace

void add_sparsemax_kernels(KernelRegistry& kernels) { kernels.add("sparsemax", bind_sparsemax); }

}  // namespace espalier::cu
