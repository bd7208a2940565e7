// The loops of pooling over planes, windows and their elements, and over channels that come last.
#pragma once
#include <algorithm>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "espalier/core/cpu/parallel.h"
#include "espalier/core/cpu/vectorize.h"
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

/// Calls `f(window, ranges)` for the windows of a plane in row-major order.
template <class F>
void each_window(const PoolAxes& axes, F&& f) {
  int64_t window = 0;
  for (int64_t i = 0; i < axes.at[0].count; ++i)
    for (int64_t j = 0; j < axes.at[1].count; ++j)
      for (int64_t k = 0; k < axes.at[2].count; ++k)
        f(window++, range_of(axes.at[0], i), range_of(axes.at[1], j), range_of(axes.at[2], k));
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
/// Calls `f(first element, first window)` for each plane, on several threads. `width`: the channels of an
/// element that come last, or 1.
template <class F>
void each_plane(const PoolAxes& axes, int64_t planes, int64_t width, F&& f) {
  const int64_t elements = axes.elements() * width, windows = axes.windows() * width;
  parallel_for(planes, std::max<int64_t>(1, detail::grain / std::max<int64_t>(1, elements)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t plane = begin; plane < end; ++plane) f(plane * elements, plane * windows);
               });
}

/// to[i] += from[i]
template <class T>
void add_channels(int64_t channels, const T* from, T* to) {
  detail::binary_row<scalar::Add, T, T>(channels, to, to, 1, from, 1);
}

/// For each channel, which of the `count` places has the largest element; `from` is [place, channel]. The
/// first of equal ones; a NaN is larger than all numbers. Place: an integer that counts the places of a
/// plane.
template <class Place, class T>
void find_largest(const T* from, const int64_t* places, int64_t count, int64_t channels, int64_t* to) {
  constexpr int64_t lanes = 64;
  for (int64_t first = 0; first < channels; first += lanes) {
    const int64_t n = std::min(lanes, channels - first);
    const T* in = from + first;
    int64_t* out = to + first;
    // Masks instead of branches, in loops that the compiler turns into vectors.
    vectorized([=]() __attribute__((always_inline)) {
      T best[lanes];
      Place at[lanes], larger[lanes];
      for (int64_t i = 0; i < n; ++i) best[i] = in[places[0] * channels + i];
      for (int64_t i = 0; i < n; ++i) at[i] = static_cast<Place>(places[0]);
      for (int64_t k = 1; k < count; ++k) {
        const T* row = in + places[k] * channels;
        const auto place = static_cast<Place>(places[k]);
        for (int64_t i = 0; i < n; ++i) {
          const Place is_number = best[i] == best[i] ? -1 : 0, is_not_larger = row[i] <= best[i] ? -1 : 0;
          larger[i] = is_number & ~is_not_larger;
        }
        for (int64_t i = 0; i < n; ++i) at[i] = (place & larger[i]) | (at[i] & ~larger[i]);
        for (int64_t i = 0; i < n; ++i) best[i] = larger[i] != 0 ? row[i] : best[i];
      }
      for (int64_t i = 0; i < n; ++i) out[i] = at[i];
    });
  }
}

/// The same for the windows of a plane that lie side by side along the last axis, which is not divided into
/// parts; `a` and `b` are their ranges of the other axes.
template <class Place, class T>
void find_largest_of_row(const PoolAxes& axes, const PoolRange& a, const PoolRange& b, const T* from,
                         int64_t* to) {
  constexpr int64_t lanes = 64, vector = 16;
  const PoolAxis c = axes.at[2];
  for (int64_t begin = 0; begin < c.count; begin += lanes) {
    const int64_t n = std::min(lanes, c.count - begin), padded = (n + vector - 1) / vector * vector;
    vectorized([ =, &axes ]() __attribute__((always_inline)) {
      T best[lanes], row[lanes];
      Place at[lanes], larger[lanes];
      const auto row_of = [&](int64_t i, int64_t j) {
        return ((a.first + i * a.step) * axes.at[1].size + b.first + j * b.step) * c.size;
      };
      for (int64_t k = 0; k < padded; ++k) {
        const int64_t window = begin + std::min(k, n - 1);
        at[k] = static_cast<Place>(row_of(0, 0) + range_of(c, window).first);
        best[k] = from[at[k]];
      }
      for (int64_t i = 0; i < a.count; ++i)
        for (int64_t j = 0; j < b.count; ++j)
          for (int64_t d = 0; d < c.kernel; ++d) {
            // Of the first window, which may not have it. Those that do not have it keep what they have.
            const int64_t shift = begin * c.stride - c.before + d * c.dilation, last = c.size - 1 - shift;
            const int64_t low = shift < 0 ? (-shift + c.stride - 1) / c.stride : 0,
                          high = last < 0 ? 0 : std::min(n, last / c.stride + 1);
            const T* in = from + row_of(i, j) + shift;
            using Wraps = std::make_unsigned_t<Place>;  // where a window does not have it
            const auto place = static_cast<Wraps>(row_of(i, j) + shift), step = static_cast<Wraps>(c.stride);
            for (int64_t k = 0; k < std::min(low, n); ++k) row[k] = best[k];
            for (int64_t k = low; k < high; ++k) row[k] = in[k * c.stride];
            for (int64_t k = std::max(low, high); k < padded; ++k) row[k] = best[k];
            for (int64_t k = 0; k < padded; ++k) {
              const Place is_number = best[k] == best[k] ? -1 : 0, is_not_larger = row[k] <= best[k] ? -1 : 0;
              larger[k] = is_number & ~is_not_larger;
            }
            for (int64_t k = 0; k < padded; ++k)
              at[k] = (static_cast<Place>(place + static_cast<Wraps>(k) * step) & larger[k]) |
                      (at[k] & ~larger[k]);
            for (int64_t k = 0; k < padded; ++k) best[k] = larger[k] != 0 ? row[k] : best[k];
          }
      for (int64_t k = 0; k < n; ++k) to[begin + k] = at[k];
    });
  }
}

/// find_largest for each window of a plane [elements].
template <class T>
void find_largest_by_rows(const PoolAxes& axes, const T* from, int64_t* to) {
  const bool fits32 = axes.elements() <= std::numeric_limits<int32_t>::max();
  const auto find =
      sizeof(T) <= 4 && fits32 ? find_largest_of_row<int32_t, T> : find_largest_of_row<int64_t, T>;
  for (int64_t i = 0; i < axes.at[0].count; ++i)
    for (int64_t j = 0; j < axes.at[1].count; ++j, to += axes.at[2].count)
      find(axes, range_of(axes.at[0], i), range_of(axes.at[1], j), from, to);
}

/// find_largest for each window of a plane [elements, channels], to [windows, channels].
template <class T>
void find_largest_of_windows(const PoolAxes& axes, int64_t channels, const T* from, int64_t* to) {
  std::vector<int64_t> places;
  const bool fits32 = axes.elements() <= std::numeric_limits<int32_t>::max();
  each_window(axes, [&](int64_t window, const PoolRange& a, const PoolRange& b, const PoolRange& c) {
    places.clear();
    each_element(axes, a, b, c, [&](int64_t at) { places.push_back(at); });
    const auto count = static_cast<int64_t>(places.size());
    const auto find = sizeof(T) <= 4 && fits32 ? find_largest<int32_t, T> : find_largest<int64_t, T>;
    find(from, places.data(), count, channels, to + window * channels);
  });
}

}  // namespace espalier
