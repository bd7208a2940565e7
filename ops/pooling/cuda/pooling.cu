// Kernels of pooling, with the channels before the axes of places or last.
#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/index_list.h"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/cuda/words.cuh"
#include "espalier/ops/pooling/pool_windows.h"

namespace espalier::cu {

namespace {

/// PoolAxes in the integers that kernels compute with: 32 bits where these suffice, since a GPU divides those
/// of 64 bits ten times as slowly.
template <class I>
struct Axes {
  struct Axis {
    I size, count, kernel, stride, before, dilation;

    __device__ I begin(I window) const {
      return kernel == 0 ? static_cast<I>(int64_t{window} * size / count) : window * stride - before;
    }
    __device__ I length(I window) const {
      if (kernel != 0) return kernel;
      return static_cast<I>((int64_t{window + 1} * size + count - 1) / count) - begin(window);
    }
    /// Whether a window has that element.
    __device__ bool has(I window, I element) const {
      const I from = element - begin(window);
      if (from < 0) return false;
      if (dilation == 1) return from < length(window);
      const I place = from / dilation;
      return place < length(window) && place * dilation == from;
    }
  };
  Axis at[3];
  I width;  ///< the channels that come last, or 1

  __device__ I elements() const { return at[0].size * at[1].size * at[2].size; }  ///< of a plane
  __device__ I windows() const { return at[0].count * at[1].count * at[2].count; }
};

template <class I>
Axes<I> on_device(const PoolAxes& axes, int64_t width) {
  Axes<I> result{};
  for (int i = 0; i < 3; ++i) {
    const PoolAxis& a = axes.at[i];
    const auto to = [](int64_t x) { return static_cast<I>(x); };
    result.at[i] = {to(a.size), to(a.count), to(a.kernel), to(a.stride), to(a.before), to(a.dilation)};
  }
  result.width = static_cast<I>(width);
  return result;
}

/// A window, the plane that it is in, and which of the channels that come last.
template <class I>
struct WindowOfPlane {
  I plane, channel, at[3];
};
template <class I>
__device__ WindowOfPlane<I> window_of(I number, const Axes<I>& axes) {
  const I window = axes.width == 1 ? number : number / axes.width, rows = window / axes.at[2].count,
          slices = rows / axes.at[1].count, planes = slices / axes.at[0].count;
  return {planes,
          number - window * axes.width,
          {slices - planes * axes.at[0].count, rows - slices * axes.at[1].count,
           window - rows * axes.at[2].count}};
}

/// Calls `f(place)` for the elements of a window that lie in the plane, in row-major order.
template <class I, class F>
__device__ void each_element_of(const WindowOfPlane<I>& w, const Axes<I>& axes, F&& f) {
  I begin[3], length[3];
  for (int a = 0; a < 3; ++a) {
    begin[a] = axes.at[a].begin(w.at[a]);
    length[a] = axes.at[a].length(w.at[a]);
  }
  for (I i = 0; i < length[0]; ++i) {
    const I x = begin[0] + i * axes.at[0].dilation;
    if (x < 0 || x >= axes.at[0].size) continue;
    for (I j = 0; j < length[1]; ++j) {
      const I y = begin[1] + j * axes.at[1].dilation;
      if (y < 0 || y >= axes.at[1].size) continue;
      for (I k = 0; k < length[2]; ++k) {
        const I z = begin[2] + k * axes.at[2].dilation;
        if (z >= 0 && z < axes.at[2].size) f((x * axes.at[1].size + y) * axes.at[2].size + z);
      }
    }
  }
}

template <bool places, class T>
using LargestOf = std::conditional_t<places, int64_t, T>;
/// One thread for each window, which writes its largest element, or the place of that.
template <bool places, class T, class I>
__global__ void __launch_bounds__(threads_in_block)
    pool_largest_of(const T* __restrict__ in, LargestOf<places, T>* __restrict__ out,
                    const __grid_constant__ Axes<I> axes, int64_t n) {
  using C = Computed<T>;
  const I elements = axes.elements();
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const WindowOfPlane<I> w = window_of(static_cast<I>(i), axes);
    const T* plane = in + int64_t{w.plane} * elements * axes.width + w.channel;
    I best = -1;
    C largest(0);
    each_element_of(w, axes, [&](I at) {
      const C x = static_cast<C>(plane[int64_t{at} * axes.width]);
      if (best >= 0 && !(x > largest || (x != x && largest == largest))) return;
      best = at;
      largest = x;
    });
    if constexpr (places)
      out[i] = best;
    else
      out[i] = static_cast<T>(largest);
  }
}

/// One thread for each window.
template <class T, class I>
__global__ void __launch_bounds__(threads_in_block)
    pool_sum_of(const T* __restrict__ in, T* __restrict__ out, const __grid_constant__ Axes<I> axes,
                int64_t n) {
  using C = Computed<T>;
  const I elements = axes.elements();
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const WindowOfPlane<I> w = window_of(static_cast<I>(i), axes);
    const T* plane = in + int64_t{w.plane} * elements * axes.width + w.channel;
    C sum(0);
    each_element_of(w, axes, [&](I at) { sum += static_cast<C>(plane[int64_t{at} * axes.width]); });
    out[i] = static_cast<T>(sum);
  }
}

/// The windows from which on, and up to which, some may have that element.
template <class I>
__device__ void windows_around(const typename Axes<I>::Axis& axis, I element, I& first, I& end) {
  if (axis.kernel == 0) {
    first = static_cast<I>(int64_t{element} * axis.count / axis.size);
    end = first;
    while (first > 0 && axis.begin(first - 1) + axis.length(first - 1) > element) --first;
    while (end < axis.count && axis.begin(end) <= element) ++end;
    return;
  }
  const I reach = element + axis.before, span = (axis.kernel - 1) * axis.dilation;
  first = reach > span ? (reach - span + axis.stride - 1) / axis.stride : 0;
  end = reach / axis.stride + 1;
  if (end > axis.count) end = axis.count;
}

/// An element without the channels that come last, by its number: its plane, where it is there, and the
/// windows around it.
template <class I>
struct ElementOfPlane {
  I plane, place, at[3], first[3], end[3];

  __device__ ElementOfPlane(I number, const Axes<I>& axes) {
    const I rows = number / axes.at[2].size, slices = rows / axes.at[1].size;
    plane = slices / axes.at[0].size;
    place = number - plane * axes.elements();
    at[0] = slices - plane * axes.at[0].size;
    at[1] = rows - slices * axes.at[1].size;
    at[2] = number - rows * axes.at[2].size;
    for (int a = 0; a < 3; ++a) windows_around<I>(axes.at[a], at[a], first[a], end[a]);
  }
};

/// Calls `f(window, place)` for the windows that have element i, in their order: where their values lie, and
/// the place of the element in its plane.
template <class I, class F>
__device__ void each_window_with(I i, const Axes<I>& axes, F&& f) {
  const I number = axes.width == 1 ? i : i / axes.width;
  const ElementOfPlane<I> e(number, axes);
  const I windows = e.plane * axes.windows() * axes.width + i - number * axes.width;
  for (I x = e.first[0]; x < e.end[0]; ++x) {
    if (!axes.at[0].has(x, e.at[0])) continue;
    for (I y = e.first[1]; y < e.end[1]; ++y) {
      if (!axes.at[1].has(y, e.at[1])) continue;
      for (I z = e.first[2]; z < e.end[2]; ++z)
        if (axes.at[2].has(z, e.at[2]))
          f(windows + ((x * axes.at[1].count + y) * axes.at[2].count + z) * axes.width, e.place);
    }
  }
}

/// One thread for each element adds the windows that have it.
template <class T, class I>
__global__ void __launch_bounds__(threads_in_block)
    pool_spread_of(const T* __restrict__ in, T* __restrict__ out, const __grid_constant__ Axes<I> axes,
                   int64_t n) {
  using C = Computed<T>;
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    C sum(0);
    each_window_with(static_cast<I>(i), axes, [&](I window, I) { sum += static_cast<C>(in[window]); });
    out[i] = static_cast<T>(sum);
  }
}

/// One thread for each window.
template <class W, class I>
__global__ void __launch_bounds__(threads_in_block)
    pool_take_of(const W* __restrict__ in, const __grid_constant__ IndexList places, W* __restrict__ out,
                 const __grid_constant__ Axes<I> axes, int64_t n) {
  const I elements = axes.elements(), windows = axes.windows();
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const I number = static_cast<I>(i), window = axes.width == 1 ? number : number / axes.width;
    const int64_t plane = window / windows;
    out[i] =
        in[(plane * elements + places.at(i, elements, true)) * axes.width + number - window * axes.width];
  }
}

/// One thread for V elements, which are channels of one place: it adds those windows that found them. Of a
/// place outside of its window, which pool_argmax does not make, nothing is added.
template <int V, class T, class I>
__global__ void __launch_bounds__(threads_in_block)
    pool_add_to_channels(const T* __restrict__ in, const __grid_constant__ IndexList places,
                         T* __restrict__ out, const __grid_constant__ Axes<I> axes, int64_t n) {
  using C = Computed<T>;
  const I elements = axes.elements();
  for (int64_t i = grid_thread(); i < n / V; i += grid_threads()) {
    C sums[V];
#pragma unroll
    for (int v = 0; v < V; ++v) sums[v] = C(0);
    each_window_with(static_cast<I>(i * V), axes, [&](I window, I place) {
      const auto values = *reinterpret_cast<const Several<T, V>*>(in + window);
#pragma unroll
      for (int v = 0; v < V; ++v)
        if (places.at(int64_t{window} + v, elements, true) == place) sums[v] += static_cast<C>(values.at[v]);
    });
    Several<T, V> result;
#pragma unroll
    for (int v = 0; v < V; ++v) result.at[v] = static_cast<T>(sums[v]);
    reinterpret_cast<Several<T, V>*>(out)[i] = result;
  }
}

/// The same for V elements beside each other in a row of a plane, without channels behind them.
template <int V, class T, class I>
__global__ void __launch_bounds__(threads_in_block)
    pool_add_to_rows(const T* __restrict__ in, const __grid_constant__ IndexList places, T* __restrict__ out,
                     const __grid_constant__ Axes<I> axes, int64_t n) {
  using C = Computed<T>;
  const I elements = axes.elements();
  for (int64_t i = grid_thread(); i < n / V; i += grid_threads()) {
    const ElementOfPlane<I> e(static_cast<I>(i * V), axes);
    I end = e.end[2], unused;  // of the windows around the last of the elements
    if (V > 1) windows_around<I>(axes.at[2], e.at[2] + V - 1, unused, end);
    C sums[V];
#pragma unroll
    for (int v = 0; v < V; ++v) sums[v] = C(0);
    for (I x = e.first[0]; x < e.end[0]; ++x)
      for (I y = e.first[1]; y < e.end[1]; ++y) {
        const I row = ((e.plane * axes.at[0].count + x) * axes.at[1].count + y) * axes.at[2].count;
        for (I z = e.first[2]; z < end; ++z) {
          const int64_t from = places.at(int64_t{row} + z, elements, true) - e.place;
          if (from < 0 || from >= V) continue;
          const C value = static_cast<C>(in[row + z]);
#pragma unroll
          for (int v = 0; v < V; ++v)
            if (from == v) sums[v] += value;
        }
      }
    Several<T, V> result;
#pragma unroll
    for (int v = 0; v < V; ++v) result.at[v] = static_cast<T>(sums[v]);
    reinterpret_cast<Several<T, V>*>(out)[i] = result;
  }
}

/// One thread for each window.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    pool_count_of(T* __restrict__ out, const __grid_constant__ Axes<int64_t> axes, int64_t after0,
                  int64_t after1, int64_t after2, bool with_padding, int64_t n) {
  const int64_t after[3] = {after0, after1, after2};
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const WindowOfPlane<int64_t> w = window_of(i, axes);
    int64_t count = 1;
    for (int a = 0; a < 3; ++a) {
      const auto& axis = axes.at[a];
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

/// What `make(axes)` binds for windows over a tensor of shape `pooled`; of no elements, nothing. The axes
/// have 32 bits if these can count the elements of input 0, of the result, and of what a window reaches.
template <class F>
Bound bind_windows(const Op& op, const KernelCall& call, const Shape& pooled, F&& make) {
  const int64_t n = call.outputs[0]->elements();
  if (n == 0) return bound([](RandomStream) {});
  const PoolForm form = PoolForm::of(op);
  const PoolAxes axes = form.windows(pooled, op.name());
  const int64_t width = width_of(form, pooled);
  int64_t most = std::max(call.inputs[0]->elements(), n);
  for (const PoolAxis& a : axes.at)
    most = std::max({most, a.size + 2 * a.before + a.kernel * a.dilation + a.stride,
                     a.count * a.stride + a.kernel * a.dilation});
  return most < int64_t{1} << 30 ? make(on_device<int32_t>(axes, width))
                                 : make(on_device<int64_t>(axes, width));
}

template <bool places>
Bound bind_pool_largest(const Op& op, const KernelCall& call) {
  const Tensor& x = *call.inputs[0];
  return bind_windows(op, call, x.shape(), [&]<class I>(const Axes<I>& axes) {
    Bound result;
    visit_elements(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (!std::is_same_v<T, bool>)
        result = bound([=, from = ContiguousInput(x), to = call.outputs[0]](RandomStream) mutable {
          from.refresh();
          launch(pool_largest_of<places, T, I>, grid_for(to->elements()),
                 static_cast<const T*>(from.address()), static_cast<LargestOf<places, T>*>(to->address()),
                 axes, to->elements());
        });
    });
    return result;
  });
}

/// `spread`: pool_spread instead of pool_sum.
Bound bind_pool_sums(const Op& op, const KernelCall& call, bool spread) {
  const Tensor& x = *call.inputs[0];
  const Shape& pooled = spread ? call.outputs[0]->shape() : x.shape();
  return bind_windows(op, call, pooled, [&]<class I>(const Axes<I>& axes) {
    Bound result;
    visit_elements(x.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (is_real_element<T>)
        result = bound([=, from = ContiguousInput(x), to = call.outputs[0]](RandomStream) mutable {
          from.refresh();
          launch(spread ? pool_spread_of<T, I> : pool_sum_of<T, I>, grid_for(to->elements()),
                 static_cast<const T*>(from.address()), static_cast<T*>(to->address()), axes, to->elements());
        });
    });
    return result;
  });
}
Bound bind_pool_sum(const Op& op, const KernelCall& call) { return bind_pool_sums(op, call, false); }
Bound bind_pool_spread(const Op& op, const KernelCall& call) { return bind_pool_sums(op, call, true); }

/// The places that pool_argmax found, and a report for those out of range.
class Places {
 public:
  Places(const Op& op, const KernelCall& call)
      : list_(*call.inputs[1]),
        at_{nullptr, call.inputs[1]->dtype() == DType::int64, value_report(call, op.name())} {}
  IndexList refresh() {
    list_.refresh();
    at_.address = list_.address();
    return at_;
  }

 private:
  ContiguousInput list_;
  IndexList at_;
};

Bound bind_pool_take(const Op& op, const KernelCall& call) {
  const Tensor& x = *call.inputs[0];
  return bind_windows(op, call, x.shape(), [&]<class I>(const Axes<I>& axes) {
    Bound result;
    visit_words(static_cast<int64_t>(size_of(x.dtype())), [&]<class W>(TypeTag<W>) {
      if constexpr (sizeof(W) <= 8)
        result = bound([=, from = ContiguousInput(x), places = Places(op, call),
                        to = call.outputs[0]](RandomStream) mutable {
          from.refresh();
          launch(pool_take_of<W, I>, grid_for(to->elements()), static_cast<const W*>(from.address()),
                 places.refresh(), static_cast<W*>(to->address()), axes, to->elements());
        });
    });
    return result;
  });
}

Bound bind_pool_add_like(const Op& op, const KernelCall& call) {
  const Tensor& g = *call.inputs[0];
  return bind_windows(op, call, call.outputs[0]->shape(), [&]<class I>(const Axes<I>& axes) {
    Bound result;
    visit_elements(g.dtype(), [&]<class T>(TypeTag<T>) {
      if constexpr (!std::is_same_v<T, bool>)
        result = bound([=, from = ContiguousInput(g), places = Places(op, call),
                        to = call.outputs[0]](RandomStream) mutable {
          from.refresh();
          const T* in = static_cast<const T*>(from.address());
          T* sums = static_cast<T*>(to->address());
          constexpr int many = vector_width<T>;
          const bool rows = axes.width == 1;
          const int64_t n = to->elements(), beside = rows ? axes.at[2].size : axes.width;
          const bool vectors = in_vectors<T>(in, beside) && in_vectors<T>(sums, beside);
          const auto kernel =
              rows ? (vectors ? pool_add_to_rows<many, T, I> : pool_add_to_rows<1, T, I>)
                   : (vectors ? pool_add_to_channels<many, T, I> : pool_add_to_channels<1, T, I>);
          launch(kernel, grid_for(vectors ? n / many : n), in, places.refresh(), sums, axes, n);
        });
    });
    return result;
  });
}

Bound bind_pool_count(const Op& op, const KernelCall& call) {
  Tensor& out = *call.outputs[0];
  const int64_t n = out.elements();
  const PoolForm form = PoolForm::of(op);
  const Axes<int64_t> axes = on_device<int64_t>(form.windows(call.inputs[0]->shape(), op.name()), 1);
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
  kernels.add("pool_argmax", bind_pool_largest<true>);
  kernels.add("pool_max", bind_pool_largest<false>);
  kernels.add("pool_sum", bind_pool_sum);
  kernels.add("pool_spread", bind_pool_spread);
  kernels.add("pool_count", bind_pool_count);
  kernels.add("pool_take", bind_pool_take);
  kernels.add("pool_add_like", bind_pool_add_like);
}

}  // namespace espalier::cu
