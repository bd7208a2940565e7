// Kernels of pooling, with the channels before the axes of places or last.
#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/pooling/pool_windows.h"

namespace espalier::cu {

namespace {

/// A window, the plane that it is in, and which of the channels that come last.
struct WindowOfPlane {
  int64_t plane, channel, at[3];
};
/// `width`: the channels that come last, or 1.
__device__ WindowOfPlane window_of(int64_t number, const PoolAxes& axes, int64_t width) {
  const int64_t window = divide(number, width), rows = divide(window, axes.at[2].count),
                slices = divide(rows, axes.at[1].count), planes = divide(slices, axes.at[0].count);
  return {planes,
          number - window * width,
          {slices - planes * axes.at[0].count, rows - slices * axes.at[1].count,
           window - rows * axes.at[2].count}};
}

/// Calls `f(place)` for the elements of a window that lie in the plane, in row-major order.
template <class F>
__device__ void each_element_of(const WindowOfPlane& w, const PoolAxes& axes, F&& f) {
  int64_t begin[3], length[3];
  for (int a = 0; a < 3; ++a) {
    begin[a] = axes.at[a].begin(w.at[a]);
    length[a] = axes.at[a].length(w.at[a]);
  }
  for (int64_t i = 0; i < length[0]; ++i) {
    const int64_t x = begin[0] + i * axes.at[0].dilation;
    if (x < 0 || x >= axes.at[0].size) continue;
    for (int64_t j = 0; j < length[1]; ++j) {
      const int64_t y = begin[1] + j * axes.at[1].dilation;
      if (y < 0 || y >= axes.at[1].size) continue;
      for (int64_t k = 0; k < length[2]; ++k) {
        const int64_t z = begin[2] + k * axes.at[2].dilation;
        if (z >= 0 && z < axes.at[2].size) f((x * axes.at[1].size + y) * axes.at[2].size + z);
      }
    }
  }
}

/// One thread for each window.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    pool_argmax_of(const T* __restrict__ in, int64_t* __restrict__ out, const __grid_constant__ PoolAxes axes,
                   int64_t width, int64_t n) {
  using C = Computed<T>;
  const int64_t elements = axes.elements();
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const WindowOfPlane w = window_of(i, axes, width);
    const T* plane = in + w.plane * elements * width + w.channel;
    int64_t best = -1;
    C largest(0);
    each_element_of(w, axes, [&](int64_t at) {
      const C x = static_cast<C>(plane[at * width]);
      if (best >= 0 && !(x > largest || (x != x && largest == largest))) return;
      best = at;
      largest = x;
    });
    out[i] = best;
  }
}

/// One thread for each window.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    pool_sum_of(const T* __restrict__ in, T* __restrict__ out, const __grid_constant__ PoolAxes axes,
                int64_t width, int64_t n) {
  using C = Computed<T>;
  const int64_t elements = axes.elements();
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const WindowOfPlane w = window_of(i, axes, width);
    const T* plane = in + w.plane * elements * width + w.channel;
    C sum(0);
    each_element_of(w, axes, [&](int64_t at) { sum += static_cast<C>(plane[at * width]); });
    out[i] = static_cast<T>(sum);
  }
}

/// Returns true if a window of an axis has that element.
__device__ bool has(const PoolAxis& axis, int64_t window, int64_t element) {
  const int64_t from = element - axis.begin(window);
  return from >= 0 && divide(from, axis.dilation) < axis.length(window) &&
         divide(from, axis.dilation) * axis.dilation == from;
}
/// The windows from which on, and up to which, some may have that element.
__device__ void windows_around(const PoolAxis& axis, int64_t element, int64_t& first, int64_t& end) {
  if (axis.kernel == 0) {
    first = divide(element * axis.count, axis.size);
    end = first;
    while (first > 0 && axis.begin(first - 1) + axis.length(first - 1) > element) --first;
    while (end < axis.count && axis.begin(end) <= element) ++end;
    return;
  }
  const int64_t reach = element + axis.before, span = (axis.kernel - 1) * axis.dilation;
  first = reach > span ? divide(reach - span + axis.stride - 1, axis.stride) : 0;
  end = divide(reach, axis.stride) + 1;
  if (end > axis.count) end = axis.count;
}

/// One thread for each element adds the windows that have it, in their order.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    pool_spread_of(const T* __restrict__ in, T* __restrict__ out, const __grid_constant__ PoolAxes axes,
                   int64_t width, int64_t n) {
  using C = Computed<T>;
  const int64_t windows = axes.windows();
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t element = divide(i, width), rows = divide(element, axes.at[2].size),
                  slices = divide(rows, axes.at[1].size), plane = divide(slices, axes.at[0].size);
    const int64_t at[3] = {slices - plane * axes.at[0].size, rows - slices * axes.at[1].size,
                           element - rows * axes.at[2].size};
    int64_t first[3], end[3];
    for (int a = 0; a < 3; ++a) windows_around(axes.at[a], at[a], first[a], end[a]);
    const T* from = in + plane * windows * width + i - element * width;
    C sum(0);
    for (int64_t x = first[0]; x < end[0]; ++x) {
      if (!has(axes.at[0], x, at[0])) continue;
      for (int64_t y = first[1]; y < end[1]; ++y) {
        if (!has(axes.at[1], y, at[1])) continue;
        for (int64_t z = first[2]; z < end[2]; ++z)
          if (has(axes.at[2], z, at[2]))
            sum += static_cast<C>(from[((x * axes.at[1].count + y) * axes.at[2].count + z) * width]);
      }
    }
    out[i] = static_cast<T>(sum);
  }
}

/// One thread for each window.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    pool_count_of(T* __restrict__ out, const __grid_constant__ PoolAxes axes, int64_t after0, int64_t after1,
                  int64_t after2, bool with_padding, int64_t n) {
  const int64_t after[3] = {after0, after1, after2};
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const WindowOfPlane w = window_of(i, axes, 1);
    int64_t count = 1;
    for (int a = 0; a < 3; ++a) {
      const PoolAxis& axis = axes.at[a];
      const bool padded = with_padding && axis.kernel != 0;
      const int64_t least = padded ? -axis.before : 0, end = axis.size + (padded ? after[a] : 0);
      const int64_t begin = axis.begin(w.at[a]), length = axis.length(w.at[a]);
      int64_t inside = 0;
      for (int64_t k = 0; k < length; ++k) {
        const int64_t place = begin + k * axis.dilation;
        if (place >= least && place < end) ++inside;
      }
      count *= inside;
    }
    out[i] = static_cast<T>(static_cast<float>(count));
  }
}

/// The channels of x that come last, or 1.
int64_t width_of(const PoolForm& form, const Shape& x) { return form.channels_last ? x[-1] : 1; }

Bound bind_pool_argmax(const Op& op, const KernelCall& call) {
  const Tensor& x = *call.inputs[0];
  Tensor& out = *call.outputs[0];
  const int64_t n = out.elements();
  if (n == 0) return bound([](RandomStream) {});
  const PoolForm form = PoolForm::of(op);
  const PoolAxes axes = form.windows(x.shape(), op.name());
  const int64_t width = width_of(form, x.shape());
  Bound result;
  visit_elements(x.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (!std::is_same_v<T, bool>)
      result = bound([=, from = ContiguousInput(x), to = &out](RandomStream) mutable {
        from.refresh();
        launch(pool_argmax_of<T>, grid_for(n), static_cast<const T*>(from.address()),
               static_cast<int64_t*>(to->address()), axes, width, n);
      });
  });
  return result;
}

/// `spread`: pool_spread instead of pool_sum.
Bound bind_pool_sums(const Op& op, const KernelCall& call, bool spread) {
  const Tensor& x = *call.inputs[0];
  Tensor& out = *call.outputs[0];
  const int64_t n = out.elements();
  if (n == 0) return bound([](RandomStream) {});
  const PoolForm form = PoolForm::of(op);
  const PoolAxes axes = form.windows(spread ? out.shape() : x.shape(), op.name());
  const int64_t width = width_of(form, x.shape());
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>)
      result = bound([=, from = ContiguousInput(x), to = &out](RandomStream) mutable {
        from.refresh();
        launch(spread ? pool_spread_of<T> : pool_sum_of<T>, grid_for(n),
               static_cast<const T*>(from.address()), static_cast<T*>(to->address()), axes, width, n);
      });
  });
  return result;
}
Bound bind_pool_sum(const Op& op, const KernelCall& call) { return bind_pool_sums(op, call, false); }
Bound bind_pool_spread(const Op& op, const KernelCall& call) { return bind_pool_sums(op, call, true); }

Bound bind_pool_count(const Op& op, const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  const int64_t n = out.elements();
  const PoolForm form = PoolForm::of(op);
  const PoolAxes axes = form.windows(call.inputs[0]->shape(), op.name());
  int64_t after[3] = {0, 0, 0};
  for (size_t i = 0; i < form.after.size(); ++i)
    after[most_pooled_axes - form.after.size() + i] = form.after[i];
  const int64_t a = after[0], b = after[1], c = after[2];
  const bool with_padding = attribute<bool>(op, "with_padding");
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>)
      result = bound([=, to = &out](RandomStream) {
        launch(pool_count_of<T>, grid_for(n), static_cast<T*>(to->address()), axes, a, b, c, with_padding, n);
      });
  });
  return result;
}

}  // namespace

void add_pooling_kernels(KernelRegistry& kernels) {
  kernels.add("pool_argmax", bind_pool_argmax);
  kernels.add("pool_sum", bind_pool_sum);
  kernels.add("pool_spread", bind_pool_spread);
  kernels.add("pool_count", bind_pool_count);
}

}  // namespace espalier::cu
