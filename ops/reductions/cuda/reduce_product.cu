// Products along an axis, and counts along axes.
#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/reductions/cuda/reduce_kernels.cuh"

namespace espalier::cu {

namespace reduction {

template <class T>
struct Product {
  using Element = T;
  using Part = Computed<T>;
  using Total = Part;
  using OfTotals = Product<Total>;
  template <class U>
  __device__ U operator()(U a, U b) const {
    return scalar::Multiply()(a, b);
  }
  template <class U>
  static __device__ U none() {
    return U(1);
  }
  template <class To>
  static __device__ To finish(Total total, double) {
    return static_cast<To>(total);
  }
};

}  // namespace reduction

namespace {

Bound bind_prod(const Op& op, const KernelCall& call) {
  const Tensor& in = *call.inputs[0];
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const auto axis = static_cast<int64_t>(resolve_axis(attribute<int64_t>(op, "axis"), in.rank(), op.name()));
  const reduction::Form form(in, Dims{axis});
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>)
      result = reduction::bind_fold<reduction::Product<T>>(form, out, 1);
  });
  return result;
}

/// 1 where an element counts, else 0.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    mark_elements(const T* __restrict__ in, int64_t* __restrict__ out, int64_t count, bool zeros) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads())
    out[i] = (static_cast<Computed<T>>(in[i]) == Computed<T>(0)) == zeros;
}

/// Marks the elements, and adds up the marks.
Bound bind_count_nonzero(const Op& op, const KernelCall& call) {
  const Tensor& in = *call.inputs[0];
  Tensor& out = *call.outputs[0];
  if (out.elements() == 0) return bound([](RandomStream) {});
  const auto list = attribute<std::vector<int64_t>>(op, "axes");
  const auto gone = Axes(list).mask(in.rank(), op.name());
  Dims axes;
  for (size_t i = 0; i < in.rank(); ++i)
    if (gone[i]) axes.push_back(static_cast<int64_t>(i));
  const Tensor marks(in.shape(), int64, out.device());
  const int64_t count = in.elements();
  const bool zeros = attribute<bool>(op, "zeros");
  Bound sum = reduction::bind_sum(reduction::Form(marks, axes), out, 1), result;
  if (count == 0) return sum;
  const auto mark = [&]<class T>(TypeTag<T>) {
    result = bound([=, x = ContiguousInput(in), sum = std::move(sum)](RandomStream random) mutable {
      x.refresh();
      launch(mark_elements<T>, grid_for(count), static_cast<const T*>(x.address()),
             static_cast<int64_t*>(marks.address()), count, zeros);
      sum->run(random);
    });
  };
  if (in.dtype() == DType::int16)
    mark(TypeTag<int16_t>{});
  else if (is_small_integer(in.dtype()))
    mark(TypeTag<uint8_t>{});
  else
    visit_elements(in.dtype(), mark);
  return result;
}

}  // namespace

void add_product_kernels(KernelRegistry& kernels) {
  kernels.add("prod", bind_prod);
  kernels.add("count_nonzero", bind_count_nonzero);
}

}  // namespace espalier::cu
