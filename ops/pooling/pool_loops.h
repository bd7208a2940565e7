// The loops of pooling over planes, windows and their elements, and over channels that come last.
#pragma once
#include <algorithm>
#include <cstdint>

#include "espalier/core/cpu/parallel.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/pooling/pool_windows.h"

namespace espalier {

/// The elements of a window that lie in an axis: from `first` on, `step` apart, `count` of them.
struct PoolRange {
  int64_t first, count, step;
};
inline PoolRange range_of(const PoolAxis& axis, int64_t window) {
  const int64_t begin = axis.begin(window), length = axis.length(window);
  const int64_t skipped = begin < 0 ? (-begin + axis.dilation - 1) / axis.dilation : 0;
  const int64_t first = begin + skipped * axis.dilation;
  const int64_t inside = first < axis.size ? (axis.size - first - 1) / axis.dilation + 1 : 0;
  return {first, std::clamp<int64_t>(length - skipped, 0, inside), axis.dilation};
}

/// How many windows from this one on have elements at the same distances.
inline int64_t windows_alike(const PoolAxis& axis, int64_t window) {
  const int64_t room = axis.size - 1 - (axis.kernel - 1) * axis.dilation + axis.before;
  if (axis.kernel == 0 || axis.begin(window) < 0 || room < window * axis.stride) return 1;
  return std::min(axis.count - 1, room / axis.stride) - window + 1;
}

/// Calls `f(row, ranges)` for the rows of windows of a plane: all along its last axis.
template <class F>
void each_row(const PoolAxes& axes, F&& f) {
  int64_t row = 0;
  for (int64_t i = 0; i < axes.at[0].count; ++i)
    for (int64_t j = 0; j < axes.at[1].count; ++j) f(row++, range_of(axes.at[0], i), range_of(axes.at[1], j));
}
/// Calls `f(window, ranges)` for the windows of a plane in row-major order.
template <class F>
void each_window(const PoolAxes& axes, F&& f) {
  int64_t window = 0;
  each_row(axes, [&](int64_t, const PoolRange& a, const PoolRange& b) {
    for (int64_t k = 0; k < axes.at[2].count; ++k) f(window++, a, b, range_of(axes.at[2], k));
  });
}
/// Calls `f(place)` for the elements of a window in row-major order, by their place in the plane.
template <class F>
void each_element(const PoolAxes& axes, const PoolRange& a, const PoolRange& b, const PoolRange& c, F&& f) {
  for (int64_t i = 0; i < a.count; ++i)
    for (int64_t j = 0; j < b.count; ++j) {
      const int64_t row = ((a.first + i * a.step) * axes.at[1].size + b.first + j * b.step) * axes.at[2].size;
      for (int64_t k = 0; k < c.count; ++k) f(row + c.first + k * c.step);
    }
}
/// Calls `make()` on several threads, and what it makes, `f(first element, first window)`, for each plane.
/// `width`: the channels of an element that come last, or 1.
template <class Make>
void each_plane_by(const PoolAxes& axes, int64_t planes, int64_t width, Make&& make) {
  const int64_t elements = axes.elements() * width, windows = axes.windows() * width;
  parallel_for(planes, std::max<int64_t>(1, detail::grain / std::max<int64_t>(1, elements)),
               [&](int64_t begin, int64_t end) {
                 auto f = make();
                 for (int64_t plane = begin; plane < end; ++plane) f(plane * elements, plane * windows);
               });
}
/// Calls `f(first element, first window)` for each plane, on several threads.
template <class F>
void each_plane(const PoolAxes& axes, int64_t planes, int64_t width, F&& f) {
  each_plane_by(axes, planes, width,
                [&] { return [&](int64_t element, int64_t window) { f(element, window); }; });
}

/// to[i] += from[i]
template <class T>
void add_channels(int64_t channels, const T* from, T* to) {
  detail::binary_row<scalar::Add, T, T>(channels, to, to, 1, from, 1);
}

}  // namespace espalier
