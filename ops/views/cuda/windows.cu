// Kernels of add_windows, positions_like and pair_positions_like.
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/kernels.h"

namespace espalier::cu {

namespace {

/// Windows that begin `step` apart, of elements `dilation` apart, on an axis with `inner` elements behind it.
struct WindowsForm {
  StridedWalk outer;                  ///< the axes of the input but the two of the windows, in their order
  int64_t number_step, element_step;  ///< strides of the input along these two
  int64_t count, size, step, dilation, length, inner;
};

/// One thread for each output adds what lies there of all windows, in the order of their elements.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    add_windows_of(const T* __restrict__ in, T* __restrict__ out, const __grid_constant__ WindowsForm form,
                   int64_t n) {
  using C = Computed<T>;
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t row = divide(i, form.inner), block = divide(row, form.length);
    const int64_t at = row - block * form.length;
    const T* from = in + form.outer.offset(block * form.inner + (i - row * form.inner));
    C sum(0);
    for (int64_t k = 0; k < form.size; ++k) {
      const int64_t begin = at - k * form.dilation;
      if (begin < 0) break;
      const int64_t number = divide(begin, form.step);
      if (number * form.step == begin && number < form.count)
        sum = scalar::Add()(sum, static_cast<C>(from[number * form.number_step + k * form.element_step]));
    }
    out[i] = static_cast<T>(sum);
  }
}

Bound bind_add_windows(const Op& op, const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  const Tensor& x = *call.inputs[0];
  const int64_t n = out.elements();
  if (n == 0) return bound([](RandomStream) {});
  if (x.elements() == 0) return bound([to = &out](RandomStream) { zero_elements(*to); });
  const size_t axis = resolve_axis(attribute<int64_t>(op, "axis"), out.rank(), op.name());
  Layout outer = x.layout();
  outer.offset = 0;
  const int64_t count = outer.shape.dims()[axis], size = outer.shape.dims().back();
  const int64_t number_step = outer.strides[axis], element_step = outer.strides.back();
  outer.shape.dims().pop_back();
  outer.strides.pop_back();
  int64_t inner = 1;
  for (size_t i = axis + 1; i < out.rank(); ++i) inner *= out.shape().dims()[i];
  outer.shape.dims().erase(axis);
  outer.strides.erase(axis);
  const WindowsForm form{StridedWalk(collapsed(outer)),
                         number_step,
                         element_step,
                         count,
                         size,
                         attribute<int64_t>(op, "step"),
                         attribute<int64_t>(op, "dilation"),
                         out.shape().dims()[axis],
                         inner};
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>)
      result = bound([=, from = &x, to = &out](RandomStream) {
        launch(add_windows_of<T>, grid_for(n), static_cast<const T*>(from->address()),
               static_cast<T*>(to->address()), form, n);
      });
  });
  return result;
}

__global__ void __launch_bounds__(threads_in_block) count_up_from_zero(int64_t* out, int64_t n) {
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) out[i] = i;
}

Bound bind_positions_like(const KernelCall& call) {
  const int64_t n = call.outputs[0]->elements();
  if (n == 0) return bound([](RandomStream) {});
  return bound([=, to = call.outputs[0]](RandomStream) {
    launch(count_up_from_zero, grid_for(n), static_cast<int64_t*>(to->address()), n);
  });
}

/// One thread for each element of a matrix [n, n]; those above the diagonal write their numbers.
__global__ void __launch_bounds__(threads_in_block) number_pairs(int64_t* out, int64_t n) {
  for (int64_t at = grid_thread(); at < n * n; at += grid_threads()) {
    const int64_t i = divide(at, n), j = at - i * n;
    if (i < j) out[i * n - i * (i + 1) / 2 + (j - i - 1)] = at;
  }
}

Bound bind_pair_positions_like(const KernelCall& call) {
  const int64_t n = call.inputs[0]->shape()[0];
  if (n < 2) return bound([](RandomStream) {});
  return bound([=, to = call.outputs[0]](RandomStream) {
    launch(number_pairs, grid_for(n * n), static_cast<int64_t*>(to->address()), n);
  });
}

}  // namespace

void add_window_kernels(KernelRegistry& kernels) {
  kernels.add("add_windows", bind_add_windows);
  kernels.add("positions_like", bind_positions_like);
  kernels.add("pair_positions_like", bind_pair_positions_like);
}

}  // namespace espalier::cu
