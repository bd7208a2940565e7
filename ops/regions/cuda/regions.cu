// Kernels of regions of images, and of fractional pooling.
#include "espalier/ops/regions/region_bins.h"

#include "espalier/ops/cuda/contiguous_input.h"
#include "espalier/ops/cuda/elements.cuh"
#include "espalier/ops/cuda/index_list.h"
#include "espalier/ops/cuda/kernels.h"
#include "espalier/ops/pooling/fractional_windows.h"

namespace espalier::cu {

namespace {

/// The sizes of a call.
struct RegionSizes {
  int64_t images, channels, height, width;  ///< of the images
  int64_t rows, columns;                    ///< of the bins of a box
  double scale;
  int64_t samples;
  bool aligned;
};
RegionSizes sizes_of(const Op& op, const Shape& x) {
  const RoiForm form = RoiForm::of(op);
  return {x[0], x[1], x[2], x[3], form.height, form.width, form.scale, form.samples, form.aligned};
}

/// One axis of box `k`: 1 is y, 0 is x.
template <class C, class T>
__device__ BinAxis<C> axis_of(const T* boxes, int64_t k, int axis, const RegionSizes& s) {
  return BinAxis<C>(static_cast<C>(boxes[4 * k + axis]), static_cast<C>(boxes[4 * k + axis + 2]),
                    static_cast<C>(s.scale), axis ? s.rows : s.columns, s.samples, s.aligned);
}

/// One thread for each bin of a channel.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    roi_align_of(const T* __restrict__ in, const T* __restrict__ boxes, IndexList images, T* __restrict__ out,
                 const __grid_constant__ RegionSizes s, int64_t n) {
  using C = Computed<T>;
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t row = divide(i, s.columns), plane = divide(row, s.rows), k = divide(plane, s.channels);
    const int64_t column = i - row * s.columns, channel = plane - k * s.channels;
    const T* from = in + (images.at(k, s.images, false) * s.channels + channel) * s.height * s.width;
    const BinAxis<C> ys = axis_of<C>(boxes, k, 1, s), xs = axis_of<C>(boxes, k, 0, s);
    const SampleRange down = ys.inside(row - plane * s.rows, s.height), across = xs.inside(column, s.width);
    C sum(0);
    for (int64_t a = down.begin; a < down.end; ++a) {
      const AxisTap<C> y(ys.at(row - plane * s.rows, a), s.height);
      if (y.low_share + y.high_share == C(0)) continue;
      const T *upper = from + y.low * s.width, *lower = from + y.high * s.width;
      for (int64_t b = across.begin; b < across.end; ++b) {
        const AxisTap<C> x(xs.at(column, b), s.width);
        if (x.low_share + x.high_share == C(0)) continue;
        sum +=
            y.low_share *
                (x.low_share * static_cast<C>(upper[x.low]) + x.high_share * static_cast<C>(upper[x.high])) +
            y.high_share *
                (x.low_share * static_cast<C>(lower[x.low]) + x.high_share * static_cast<C>(lower[x.high]));
      }
    }
    const int64_t count = ys.samples * xs.samples;
    out[i] = static_cast<T>(count > 0 ? sum / static_cast<C>(count) : C(0));
  }
}

/// How much an element of an axis counts in the samples of a bin, all together.
template <class C>
__device__ C share_in(const BinAxis<C>& axis, int64_t bin, int64_t element, int64_t size) {
  const SampleRange near = axis.between(bin, static_cast<C>(element - 1),
                                        static_cast<C>(element == size - 1 ? size : element + 1));
  C share(0);
  for (int64_t i = near.begin; i < near.end; ++i) share += AxisTap<C>(axis.at(bin, i), size).share(element);
  return share;
}
/// Whether samples of a box may read the element.
template <class C>
__device__ bool reaches(const BinAxis<C>& axis, int64_t bins, int64_t element, int64_t size) {
  if (axis.samples == 0) return false;
  const C first = axis.at(0, 0), last = axis.at(bins - 1, axis.samples - 1);
  const C low = first < last ? first : last, high = first < last ? last : first, at = static_cast<C>(element);
  return (element == 0 || low < at + C(1)) && (element == size - 1 || high > at - C(1)) &&
         low <= static_cast<C>(size) && high >= C(-1);
}

/// One thread for each element of the images adds what it counts in the bins of the boxes, in their order.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    roi_align_spread_of(const T* __restrict__ in, const T* __restrict__ boxes, IndexList images,
                        int64_t count, T* __restrict__ out, const __grid_constant__ RegionSizes s,
                        int64_t n) {
  using C = Computed<T>;
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t row = divide(i, s.width), plane = divide(row, s.height), image = divide(plane, s.channels);
    const int64_t z = i - row * s.width, y = row - plane * s.height, channel = plane - image * s.channels;
    C sum(0);
    for (int64_t k = 0; k < count; ++k) {
      if (images.at(k, s.images, false) != image) continue;
      const BinAxis<C> ys = axis_of<C>(boxes, k, 1, s);
      if (!reaches(ys, s.rows, y, s.height)) continue;
      const BinAxis<C> xs = axis_of<C>(boxes, k, 0, s);
      if (!reaches(xs, s.columns, z, s.width)) continue;
      const T* bins = in + (k * s.channels + channel) * s.rows * s.columns;
      C of_box(0);
      for (int64_t a = 0; a < s.rows; ++a) {
        const C down = share_in(ys, a, y, s.height);
        if (down == C(0)) continue;
        for (int64_t b = 0; b < s.columns; ++b) {
          const C across = share_in(xs, b, z, s.width);
          if (across != C(0)) of_box += down * across * static_cast<C>(bins[a * s.columns + b]);
        }
      }
      sum += of_box / static_cast<C>(ys.samples * xs.samples);
    }
    out[i] = static_cast<T>(sum);
  }
}

/// One thread for each bin of a channel.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    roi_align_argmax_of(const T* __restrict__ in, const T* __restrict__ boxes, IndexList images,
                        int64_t* __restrict__ places, T* __restrict__ shares,
                        const __grid_constant__ RegionSizes s, int64_t n) {
  using C = Computed<T>;
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t row = divide(i, s.columns), plane = divide(row, s.rows), k = divide(plane, s.channels);
    const int64_t column = i - row * s.columns, channel = plane - k * s.channels;
    const int64_t first = (images.at(k, s.images, false) * s.channels + channel) * s.height * s.width;
    const BinAxis<C> ys = axis_of<C>(boxes, k, 1, s), xs = axis_of<C>(boxes, k, 0, s);
    const SampleRange down = ys.inside(row - plane * s.rows, s.height), across = xs.inside(column, s.width);
    LargestCorner<C> best;
    int64_t inside = 0;
    for (int64_t a = down.begin; a < down.end; ++a) {
      const AxisTap<C> y(ys.at(row - plane * s.rows, a), s.height);
      if (y.low_share + y.high_share == C(0)) continue;
      for (int64_t b = across.begin; b < across.end; ++b) {
        const AxisTap<C> x(xs.at(column, b), s.width);
        if (x.low_share + x.high_share == C(0)) continue;
        best.add(in + first, s.width, y, x);
        ++inside;
      }
    }
    if (inside < ys.samples * xs.samples) best.add_outside();
    places[i] = best.place < 0 ? -1 : first + best.place;
    shares[i] = static_cast<T>(best.share);
  }
}

/// One thread for each bin of a channel.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    roi_argmax_of(const T* __restrict__ in, const T* __restrict__ boxes, IndexList images,
                  int64_t* __restrict__ out, const __grid_constant__ RegionSizes s, int64_t n) {
  using C = Computed<T>;
  const C scale = static_cast<C>(s.scale);
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t row = divide(i, s.columns), plane = divide(row, s.rows), k = divide(plane, s.channels);
    const int64_t first =
        (images.at(k, s.images, false) * s.channels + plane - k * s.channels) * s.height * s.width;
    const T* box = boxes + 4 * k;
    const WholeBin ys(static_cast<C>(box[1]), static_cast<C>(box[3]), scale, row - plane * s.rows, s.rows,
                      s.height);
    const WholeBin xs(static_cast<C>(box[0]), static_cast<C>(box[2]), scale, i - row * s.columns, s.columns,
                      s.width);
    int64_t best = -1;
    C largest(0);
    for (int64_t y = ys.begin; y < ys.end; ++y)
      for (int64_t z = xs.begin; z < xs.end; ++z) {
        const int64_t at = first + y * s.width + z;
        const C x = static_cast<C>(in[at]);
        if (best >= 0 && !(x > largest || (x != x && largest == largest))) continue;
        best = at;
        largest = x;
      }
    out[i] = best;
  }
}

/// One thread for each window. The last `drawn` axes have a sample.
template <class T>
__global__ void __launch_bounds__(threads_in_block)
    fractional_argmax_of(const T* __restrict__ in, const T* __restrict__ samples, int64_t* __restrict__ out,
                         const __grid_constant__ FractionalAxes a, int drawn, int64_t n) {
  using C = Computed<T>;
  for (int64_t i = grid_thread(); i < n; i += grid_threads()) {
    const int64_t rows = divide(i, a.count[2]), slices = divide(rows, a.count[1]),
                  plane = divide(slices, a.count[0]);
    const int64_t window[3] = {slices - plane * a.count[0], rows - slices * a.count[1],
                               i - rows * a.count[2]};
    int64_t begin[3] = {0, 0, 0};
    for (int axis = 3 - drawn; axis < 3; ++axis)
      begin[axis] = fractional_begin(static_cast<C>(samples[plane * drawn + axis - (3 - drawn)]),
                                     window[axis], a.count[axis], a.size[axis], a.kernel[axis]);
    const T* from = in + plane * a.elements();
    int64_t best = -1;
    C largest(0);
    for (int64_t u = begin[0]; u < begin[0] + a.kernel[0]; ++u)
      for (int64_t v = begin[1]; v < begin[1] + a.kernel[1]; ++v)
        for (int64_t w = begin[2]; w < begin[2] + a.kernel[2]; ++w) {
          const int64_t at = (u * a.size[1] + v) * a.size[2] + w;
          const C x = static_cast<C>(from[at]);
          if (best >= 0 && !(x > largest || (x != x && largest == largest))) continue;
          best = at;
          largest = x;
        }
    out[i] = best;
  }
}

/// Binds what has one thread for each bin of a channel: launch_of(type, x, boxes, images, sizes, bins).
template <class F>
Bound bind_bins(const Op& op, const KernelCall& call, std::string_view named, F launch_of) {
  const Tensor &x = *call.inputs[0], &boxes = *call.inputs[1], &list = *call.inputs[2];
  const int64_t n = call.outputs[0]->elements();
  if (n == 0) return bind_look(call, list, x.shape()[0], named, false);
  const RegionSizes sizes = sizes_of(op, x.shape());
  ContiguousInput from(x), corners(boxes), numbers(list);
  const IndexList indices = index_list(call, list, numbers, named);
  Bound result;
  visit_elements(x.dtype(), [&]<class T>(TypeTag<T> type) {
    if constexpr (is_real_element<T>)
      result = bound([=, from = std::move(from), corners = std::move(corners),
                      numbers = std::move(numbers)](RandomStream) mutable {
        from.refresh(), corners.refresh(), numbers.refresh();
        launch_of(type, static_cast<const T*>(from.address()), static_cast<const T*>(corners.address()),
                  indices, sizes, n);
      });
  });
  return result;
}

Bound bind_roi_align(const Op& op, const KernelCall& call) {
  return bind_bins(op, call, op.name(),
                   [call]<class T>(TypeTag<T>, const T* x, const T* boxes, const IndexList& images,
                                   const RegionSizes& sizes, int64_t n) {
                     launch(roi_align_of<T>, grid_for(n), x, boxes, images,
                            static_cast<T*>(call.outputs[0]->address()), sizes, n);
                   });
}

Bound bind_roi_align_argmax(const Op& op, const KernelCall& call) {
  return bind_bins(op, call, "roi_align",
                   [call]<class T>(TypeTag<T>, const T* x, const T* boxes, const IndexList& images,
                                   const RegionSizes& sizes, int64_t n) {
                     launch(roi_align_argmax_of<T>, grid_for(n), x, boxes, images,
                            static_cast<int64_t*>(call.outputs[0]->address()),
                            static_cast<T*>(call.outputs[1]->address()), sizes, n);
                   });
}

Bound bind_roi_align_spread(const Op& op, const KernelCall& call) {
  const Tensor &g = *call.inputs[0], &boxes = *call.inputs[1], &list = *call.inputs[2];
  const Tensor& out = *call.outputs[0];
  const int64_t n = out.elements(), count = boxes.shape()[0];
  if (n == 0) return bind_look(call, list, out.shape()[0], op.name(), false);
  const RegionSizes sizes = sizes_of(op, out.shape());
  ContiguousInput from(g), corners(boxes), numbers(list);
  const IndexList indices = index_list(call, list, numbers, op.name());
  Bound result;
  visit_elements(out.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>)
      result = bound([=, from = std::move(from), corners = std::move(corners),
                      numbers = std::move(numbers)](RandomStream) mutable {
        from.refresh(), corners.refresh(), numbers.refresh();
        launch(roi_align_spread_of<T>, grid_for(n), static_cast<const T*>(from.address()),
               static_cast<const T*>(corners.address()), indices, count,
               static_cast<T*>(call.outputs[0]->address()), sizes, n);
      });
  });
  return result;
}

Bound bind_roi_argmax(const Op& op, const KernelCall& call) {
  return bind_bins(op, call, "roi_pool",
                   [call]<class T>(TypeTag<T>, const T* x, const T* boxes, const IndexList& images,
                                   const RegionSizes& sizes, int64_t n) {
                     launch(roi_argmax_of<T>, grid_for(n), x, boxes, images,
                            static_cast<int64_t*>(call.outputs[0]->address()), sizes, n);
                   });
}

Bound bind_fractional_argmax(const Op& op, const KernelCall& call) {
  const Tensor &x = *call.inputs[0], &samples = *call.inputs[1];
  const int64_t n = call.outputs[0]->elements();
  if (n == 0) return bound([](RandomStream) {});
  const auto kernel = attribute<std::vector<int64_t>>(op, "kernel"),
             count = attribute<std::vector<int64_t>>(op, "count");
  const FractionalAxes axes = fractional_axes(x.shape(), Dims(kernel.begin(), kernel.end()),
                                              Dims(count.begin(), count.end()), op.name());
  const int drawn = static_cast<int>(kernel.size());
  Bound result;
  visit_elements(x.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (is_real_element<T>)
      result = bound([=, from = ContiguousInput(x), given = ContiguousInput(samples)](RandomStream) mutable {
        from.refresh(), given.refresh();
        launch(fractional_argmax_of<T>, grid_for(n), static_cast<const T*>(from.address()),
               static_cast<const T*>(given.address()), static_cast<int64_t*>(call.outputs[0]->address()),
               axes, drawn, n);
      });
  });
  return result;
}

}  // namespace

void add_region_kernels(KernelRegistry& kernels) {
  kernels.add("roi_align", bind_roi_align);
  kernels.add("roi_align_argmax", bind_roi_align_argmax);
  kernels.add("roi_align_spread", bind_roi_align_spread);
  kernels.add("roi_argmax", bind_roi_argmax);
  kernels.add("fractional_argmax", bind_fractional_argmax);
}

}  // namespace espalier::cu
