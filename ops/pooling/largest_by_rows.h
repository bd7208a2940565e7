// The largest elements of windows that lie side by side along rows.
#pragma once
#include <algorithm>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "espalier/core/cpu/vectorize.h"
#include "espalier/ops/pooling/largest_loops.h"

namespace espalier {

/// Finds the largest elements of the windows of a plane whose last axis is not divided into parts: first
/// those of each row of elements, and then the largest of the rows of a window, in their order. The results
/// of rows are kept for a band of rows at a time.
template <Largest what, class Place, class T>
class LargestByRows {
 public:
  explicit LargestByRows(const PoolAxes& axes) : last_(axes.at[2]) {
    while (inside_ < last_.count && windows_alike(last_, inside_) == 1) ++inside_;
    alike_ = inside_ < last_.count ? windows_alike(last_, inside_) : 0;
    for (int64_t window = 0; window < last_.count; ++window)
      if (window < inside_ || window >= inside_ + alike_)
        others_.push_back({window, range_of(last_, window)});
    each_row(axes, [&](int64_t, const PoolRange& a, const PoolRange& b) {
      joined_.push_back({.first = a.first * axes.at[1].size + b.first,
                         .outer = a.count,
                         .outer_step = a.step * axes.at[1].size,
                         .inner = b.count,
                         .inner_step = b.step});
    });
    divide_into_bands();
  }

  template <class To>
  void find(const T* from, To* to) {
    for (const Band& band : bands_) {
      search_others(band, from);
      if (alike_ > 0) search_alike(band, from);
      join(band, to);
    }
  }

 private:
  struct Other {
    int64_t window;
    PoolRange range;
  };
  /// The rows of elements of a row of windows.
  struct Joined {
    int64_t first, outer, outer_step, inner, inner_step;

    int64_t end() const { return first + (outer - 1) * outer_step + (inner - 1) * inner_step + 1; }
  };
  /// Rows of windows, and the rows of elements from the first that they have to the last.
  struct Band {
    int64_t begin, end, first_row, end_row;
  };

  void divide_into_bands() {
    constexpr int64_t most = 1 << 14;  // that the caches hold
    int64_t longest = 0;
    for (int64_t i = 0; i < static_cast<int64_t>(joined_.size()); ++i) {
      const Joined& row = joined_[static_cast<size_t>(i)];
      const bool fits = !bands_.empty() && (row.end() - bands_.back().first_row) * last_.count <= most;
      if (!fits || row.first < bands_.back().first_row) bands_.push_back({i, i, row.first, row.end()});
      Band& band = bands_.back();
      band.end = i + 1;
      band.end_row = std::max(band.end_row, row.end());
      longest = std::max(longest, band.end_row - band.first_row);
    }
    values_.resize(static_cast<size_t>(longest * last_.count));
    if constexpr (what == Largest::place) places_.resize(values_.size());
  }

  /// Windows at the ends of a row.
  void search_others(const Band& band, const T* from) {
    for (int64_t row = band.first_row; row < band.end_row && !others_.empty(); ++row)
      for (const auto& [window, range] : others_) {
        const int64_t first = row * last_.size + range.first;
        const auto to = static_cast<size_t>((row - band.first_row) * last_.count + window);
        LargestSoFar<T, Place> largest{from[first], static_cast<Place>(first)};
        for (int64_t k = 1; k < range.count; ++k)
          largest.meet(from[first + k * range.step], static_cast<Place>(first + k * range.step));
        values_[to] = largest.value;
        if constexpr (what == Largest::place) places_[to] = largest.place;
      }
  }

  /// Windows that have all of their elements.
  void search_alike(const Band& band, const T* from) {
    const int64_t first_row = band.first_row, rows = band.end_row - first_row, size = last_.size,
                  count = last_.count, windows = alike_, inside = inside_, begin = last_.begin(inside_),
                  stride = last_.stride, dilation = last_.dilation, kernel = last_.kernel;
    T* const values = values_.data();
    Place* const places = places_.data();
    vectorized([=]() __attribute__((always_inline)) {
      // For the windows of a row: elements d to d + more.
      const auto pass = [&](int64_t row, auto step, int64_t d, auto fresh, auto more)
          __attribute__((always_inline)) {
        const T* in = from + (first_row + row) * size + begin + d * dilation;
        T* best = values + row * count + inside;
        Place* at = what == Largest::place ? places + row * count + inside : nullptr;
        const auto place = static_cast<Place>(in - from), next = static_cast<Place>(dilation);
        for (int64_t k = 0; k < windows; ++k) {
          const auto here = static_cast<Place>(place + static_cast<Place>(k) * static_cast<Place>(step));
          LargestSoFar<T, Place> largest{in[k * step], here};
          if constexpr (!fresh) {
            largest = {best[k], what == Largest::place ? at[k] : Place(0)};
            largest.meet(in[k * step], here);
          }
          if constexpr (more >= 1) largest.meet(in[k * step + dilation], here + next);
          if constexpr (more >= 2) largest.meet(in[k * step + 2 * dilation], here + 2 * next);
          best[k] = largest.value;
          if constexpr (what == Largest::place) at[k] = largest.place;
        }
      };
      const auto search = [&](auto step) __attribute__((always_inline)) {
        constexpr std::integral_constant<int, 0> none;
        constexpr std::integral_constant<int, 1> one;
        constexpr std::integral_constant<int, 2> two;
        for (int64_t row = 0; row < rows; ++row) {
          if (kernel == 1) pass(row, step, 0, std::true_type(), none);
          if (kernel == 2) pass(row, step, 0, std::true_type(), one);
          if (kernel >= 3) pass(row, step, 0, std::true_type(), two);
          for (int64_t d = 3; d < kernel; ++d) pass(row, step, d, std::false_type(), none);
        }
      };
      if (stride == 1)
        search(std::integral_constant<int64_t, 1>());
      else if (stride == 2)
        search(std::integral_constant<int64_t, 2>());
      else
        search(stride);
    });
  }

  template <class To>
  void join(const Band& band, To* to) const {
    const T* const values = values_.data();
    const Place* const places = places_.data();
    const Joined* const joined = joined_.data();
    const int64_t begin_row = band.begin, end_row = band.end, first_row = band.first_row,
                  windows = last_.count;
    vectorized([=]() __attribute__((always_inline)) {
      constexpr int64_t lanes = 64;
      for (int64_t row = begin_row; row < end_row; ++row)
        for (int64_t begin = 0; begin < windows; begin += lanes) {
          const int64_t n = std::min(lanes, windows - begin);
          const auto [first, outer, outer_step, inner, inner_step] = joined[row];
          T best[lanes];
          Place at[lanes];
          for (int64_t i = 0; i < outer; ++i)
            for (int64_t j = 0; j < inner; ++j) {
              const int64_t from = (first - first_row + i * outer_step + j * inner_step) * windows + begin;
              const T* value = values + from;
              const Place* place = what == Largest::place ? places + from : nullptr;
              if (i == 0 && j == 0) {
                for (int64_t k = 0; k < n; ++k) best[k] = value[k];
                if constexpr (what == Largest::place)
                  for (int64_t k = 0; k < n; ++k) at[k] = place[k];
                continue;
              }
              for (int64_t k = 0; k < n; ++k) {
                LargestSoFar<T, Place> largest{best[k], what == Largest::place ? at[k] : Place(0)};
                largest.meet(value[k], what == Largest::place ? place[k] : Place(0));
                best[k] = largest.value;
                if constexpr (what == Largest::place) at[k] = largest.place;
              }
            }
          write_largest<what>(best, at, n, to + row * windows + begin);
        }
    });
  }

  PoolAxis last_;
  int64_t inside_ = 0, alike_ = 0;  ///< windows from which on, and how many, have all of their elements
  std::vector<Other> others_;
  std::vector<Joined> joined_;  ///< by row of windows
  std::vector<Band> bands_;
  std::vector<T> values_;  ///< [row of a band, window]
  std::vector<Place> places_;
};

}  // namespace espalier
