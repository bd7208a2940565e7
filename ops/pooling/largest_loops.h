// The loops that find the largest elements of windows. The first of equal ones is taken; a NaN is larger than
// all numbers.
#pragma once
#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>
#include <vector>

#include "espalier/core/cpu/vectorize.h"
#include "espalier/ops/pooling/pool_loops.h"

namespace espalier {

/// What is written for each window: its largest element, or the place of that in its plane, as int64.
enum class Largest : uint8_t { value, place };

/// The largest of some elements, and where it lies. Masks instead of branches, for loops that the compiler
/// turns into vectors. Place: an integer that counts the places of a plane, as wide as T or wider.
template <class T, class Place>
struct LargestSoFar {
  using Mask = std::conditional_t<
      sizeof(T) == 8, int64_t,
      std::conditional_t<sizeof(T) == 4, int32_t, std::conditional_t<sizeof(T) == 2, int16_t, int8_t>>>;
  T value;
  Place place;

  [[gnu::always_inline]] void meet(T x, Place at) {
    const T best = value;
    value = std::bit_cast<T>(static_cast<Mask>((std::bit_cast<Mask>(x) & is_larger<Mask>(x, best)) |
                                               (std::bit_cast<Mask>(best) & ~is_larger<Mask>(x, best))));
    place = (at & is_larger<Place>(x, best)) | (place & ~is_larger<Place>(x, best));
  }

 private:
  template <class M>
  [[gnu::always_inline]] static M is_larger(T x, T best) {
    const M is_not_larger = x <= best ? -1 : 0;
    if constexpr (std::is_integral_v<T>) return ~is_not_larger;
    const M is_number = best == best ? -1 : 0;
    return is_number & ~is_not_larger;
  }
};

/// Writes what was found for `count` windows or channels.
template <Largest what, class T, class Place, class To>
[[gnu::always_inline]] inline void write_largest(const T* values, const Place* places, int64_t count,
                                                 To* to) {
  for (int64_t i = 0; i < count; ++i)
    if constexpr (what == Largest::place)
      to[i] = places[i];
    else
      to[i] = values[i];
}

/// For each channel of some windows: the first of them has `count` elements, at `places` of the plane
/// [elements, channels], and each of the others those that lie `step` behind.
template <Largest what, class Place, class T, class To>
void find_largest_of_channels(const T* from, const int64_t* places, int64_t count, int64_t windows,
                              int64_t step, int64_t channels, To* to) {
  constexpr int64_t lanes = 64;
  vectorized([=]() __attribute__((always_inline)) {
    T best[lanes];
    Place at[lanes];
    for (int64_t window = 0; window < windows; ++window)
      for (int64_t channel = 0; channel < channels; channel += lanes) {
        const int64_t n = std::min(lanes, channels - channel);
        const auto place = [=](int64_t k) { return static_cast<Place>(window * step + places[k]); };
        const auto row = [=](int64_t k) { return from + (window * step + places[k]) * channels + channel; };
        const T* r = row(0);
        for (int64_t i = 0; i < n; ++i) best[i] = r[i];
        for (int64_t i = 0; i < n; ++i) at[i] = place(0);
        int64_t k = 1;
        for (; k + 3 <= count; k += 3) {
          const T *a = row(k), *b = row(k + 1), *c = row(k + 2);
          const Place pa = place(k), pb = place(k + 1), pc = place(k + 2);
          for (int64_t i = 0; i < n; ++i) {
            LargestSoFar<T, Place> largest{best[i], at[i]};
            largest.meet(a[i], pa);
            largest.meet(b[i], pb);
            largest.meet(c[i], pc);
            best[i] = largest.value;
            if constexpr (what == Largest::place) at[i] = largest.place;
          }
        }
        for (; k < count; ++k) {
          const T* a = row(k);
          const Place pa = place(k);
          for (int64_t i = 0; i < n; ++i) {
            LargestSoFar<T, Place> largest{best[i], at[i]};
            largest.meet(a[i], pa);
            best[i] = largest.value;
            if constexpr (what == Largest::place) at[i] = largest.place;
          }
        }
        write_largest<what>(best, at, n, to + window * channels + channel);
      }
  });
}

/// For each window of a plane [elements, channels], to [windows, channels].
template <Largest what, class T, class To>
void find_largest_of_windows(const PoolAxes& axes, int64_t channels, const T* from, To* to) {
  const bool fits32 = axes.elements() <= std::numeric_limits<int32_t>::max();
  const auto find = sizeof(T) <= 4 && fits32 ? find_largest_of_channels<what, int32_t, T, To>
                                             : find_largest_of_channels<what, int64_t, T, To>;
  const PoolAxis& last = axes.at[2];
  std::vector<int64_t> places;
  each_row(axes, [&](int64_t row, const PoolRange& a, const PoolRange& b) {
    for (int64_t k = 0; k < last.count;) {
      const int64_t alike = windows_alike(last, k);
      const PoolRange c = range_of(last, k);
      places.clear();
      each_element(axes, a, b, c, [&](int64_t at) { places.push_back(at); });
      find(from, places.data(), static_cast<int64_t>(places.size()), alike, last.stride, channels,
           to + (row * last.count + k) * channels);
      k += alike;
    }
  });
}

/// For each window of a plane, one by one.
template <Largest what, class T, class To>
void find_largest_one_by_one(const PoolAxes& axes, const T* from, To* to) {
  each_window(axes, [&](int64_t window, const PoolRange& a, const PoolRange& b, const PoolRange& c) {
    int64_t best = (a.first * axes.at[1].size + b.first) * axes.at[2].size + c.first;
    each_element(axes, a, b, c, [&](int64_t at) {
      if (from[at] > from[best] || (from[at] != from[at] && from[best] == from[best])) best = at;
    });
    if constexpr (what == Largest::place)
      to[window] = best;
    else
      to[window] = from[best];
  });
}

}  // namespace espalier
