#include "espalier/ops/convolution/columns.h"

#include <algorithm>

#include "espalier/core/cpu/parallel.h"
#include "espalier/ops/matmul/gemm.h"

namespace espalier {

namespace {

using S = ConvolutionSizes;

/// The positions [begin, end) of an axis whose windows have element `k` within the axis.
struct Inside {
  int64_t begin, end;
};
Inside positions_inside(const S& s, size_t axis, int64_t k) {
  // 0 <= position · stride + shift < in
  const int64_t shift = k * s.dilation[axis] - s.before[axis], stride = s.stride[axis];
  const int64_t begin = shift >= 0 ? 0 : (-shift + stride - 1) / stride;
  const int64_t end = s.in[axis] <= shift ? 0 : (s.in[axis] - shift - 1) / stride + 1;
  const int64_t limit = s.out[axis];
  return {std::min(begin, limit), std::min(std::max(begin, end), limit)};
}

/// Calls `f(place in the image, place in the column row, elements)` for each run along the last axis of what
/// element `k` of all windows reads. Elements of the image are stride[2] apart. What it leaves out is
/// padding.
template <class F>
void for_runs(const S& s, int64_t k, F&& f) {
  const int64_t k2 = k % s.kernel[2], k1 = k / s.kernel[2] % s.kernel[1], k0 = k / s.kernel[2] / s.kernel[1];
  const Inside rows0 = positions_inside(s, 0, k0), rows1 = positions_inside(s, 1, k1),
               rows2 = positions_inside(s, 2, k2);
  const int64_t run = rows2.end - rows2.begin;
  if (run <= 0) return;
  for (int64_t o0 = rows0.begin; o0 < rows0.end; ++o0)
    for (int64_t o1 = rows1.begin; o1 < rows1.end; ++o1) {
      const int64_t i0 = o0 * s.stride[0] + k0 * s.dilation[0] - s.before[0],
                    i1 = o1 * s.stride[1] + k1 * s.dilation[1] - s.before[1],
                    i2 = rows2.begin * s.stride[2] + k2 * s.dilation[2] - s.before[2];
      f((i0 * s.in[1] + i1) * s.in[2] + i2, (o0 * s.out[1] + o1) * s.out[2] + rows2.begin, run);
    }
}

/// The windows of the channels of a group: [in_channels · kernel, out].
template <class T>
void to_columns(const S& s, const T* image, T* columns) {
  const int64_t places = s.kernel_places(), out = s.out_places(), in = s.in_places();
  parallel_for(s.in_channels * places, std::max<int64_t>(1, 32 * 1024 / out),
               [&](int64_t begin, int64_t end) {
                 for (int64_t row = begin; row < end; ++row) {
                   T* to = columns + row * out;
                   const T* from = image + row / places * in;
                   std::fill_n(to, out, T(0));
                   for_runs(s, row % places, [&](int64_t at, int64_t place, int64_t n) {
                     for (int64_t i = 0; i < n; ++i) to[place + i] = from[at + i * s.stride[2]];
                   });
                 }
               });
}
/// Adds them up where they lie in the image.
template <class T>
void add_columns(const S& s, const T* columns, T* image) {
  const int64_t places = s.kernel_places(), out = s.out_places(), in = s.in_places();
  parallel_for(s.in_channels, std::max<int64_t>(1, 32 * 1024 / (places * out)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t channel = begin; channel < end; ++channel) {
                   T* to = image + channel * in;
                   std::fill_n(to, in, T(0));
                   for (int64_t k = 0; k < places; ++k) {
                     const T* from = columns + (channel * places + k) * out;
                     for_runs(s, k, [&](int64_t at, int64_t place, int64_t n) {
                       for (int64_t i = 0; i < n; ++i) to[at + i * s.stride[2]] += from[place + i];
                     });
                   }
                 }
               });
}

/// The matrices of image n and group g.
template <class T>
struct Parts {
  Parts(const S& s, const Tensor& x, const Tensor& kernels, const Tensor& y, const Tensor& columns)
      : sizes(s),
        windows(static_cast<T*>(columns.address())),
        in(static_cast<T*>(x.address())),
        weights(static_cast<T*>(kernels.address())),
        out(static_cast<T*>(y.address())) {}

  T* image(int64_t n, int64_t g) const {
    return in + (n * sizes.groups + g) * sizes.in_channels * sizes.in_places();
  }
  T* result(int64_t n, int64_t g) const {
    return out + (n * sizes.groups + g) * sizes.out_channels * sizes.out_places();
  }
  T* kernels(int64_t g) const {
    return weights + g * sizes.out_channels * sizes.in_channels * sizes.kernel_places();
  }

  const S& sizes;
  T *windows, *in, *weights, *out;
};

template <class F>
void visit_floats(DType dtype, F&& f) {
  if (dtype == DType::float64)
    f(double());
  else
    f(float());
}

}  // namespace

Shape columns_shape(const S& s) { return {s.in_channels * s.kernel_places(), s.out_places()}; }

void convolve_by_columns(const S& s, const Tensor& x, const Tensor& kernels, Tensor& y,
                         const Tensor& columns) {
  visit_floats(x.dtype(), [&]<class T>(T) {
    const Parts<T> parts(s, x, kernels, y, columns);
    const int64_t m = s.out_channels, n = s.out_places(), k = s.in_channels * s.kernel_places();
    const Gemm product{x.dtype(), false, false, m, n, k, k, n, n};
    for (int64_t i = 0; i < s.batch; ++i)
      for (int64_t g = 0; g < s.groups; ++g) {
        to_columns(s, parts.image(i, g), parts.windows);
        run_gemm(product, parts.kernels(g), parts.windows, parts.result(i, g), ready_library());
      }
  });
}

void convolve_back_by_columns(const S& s, const Tensor& y, const Tensor& kernels, Tensor& x,
                              const Tensor& columns) {
  visit_floats(x.dtype(), [&]<class T>(T) {
    const Parts<T> parts(s, x, kernels, y, columns);
    const int64_t m = s.in_channels * s.kernel_places(), n = s.out_places(), k = s.out_channels;
    const Gemm product{x.dtype(), true, false, m, n, k, m, n, n};
    for (int64_t i = 0; i < s.batch; ++i)
      for (int64_t g = 0; g < s.groups; ++g) {
        run_gemm(product, parts.kernels(g), parts.result(i, g), parts.windows, ready_library());
        add_columns(s, parts.windows, parts.image(i, g));
      }
  });
}

void correlate_by_columns(const S& s, const Tensor& x, const Tensor& y, Tensor& kernels,
                          const Tensor& columns) {
  visit_floats(x.dtype(), [&]<class T>(T) {
    const Parts<T> parts(s, x, kernels, y, columns);
    const int64_t m = s.out_channels, n = s.in_channels * s.kernel_places(), k = s.out_places();
    for (int64_t i = 0; i < s.batch; ++i)
      for (int64_t g = 0; g < s.groups; ++g) {
        to_columns(s, parts.image(i, g), parts.windows);
        const Gemm product{x.dtype(), false, true, m, n, k, k, k, n, 1, i == 0 ? 0.0 : 1.0};
        run_gemm(product, parts.result(i, g), parts.windows, parts.kernels(g), ready_library());
      }
  });
}

}  // namespace espalier
