// The bins of boxes, and the samples of bilinear interpolation in them: one axis of an image at a time.
#pragma once
#include <cstdint>

#include "espalier/core/op.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/scalar.h"

namespace espalier {

/// Samples of a bin along one axis, at most: more than any image has elements there.
inline constexpr int64_t most_samples_of_a_bin = 1 << 20;
/// And of all bins of a box along one axis, where their number is given.
inline constexpr int64_t most_samples_of_a_box = 1 << 16;

/// The settings of roi_align and its transpose.
struct RoiForm {
  int64_t height = 1, width = 1;  ///< of the result
  double scale = 1;
  int64_t samples = 0;  ///< along each axis of a bin; 0: as many as it has elements, rounded up
  bool aligned = false;

  Attributes attributes() const;
  static RoiForm read(AttributeReader& reader);
  static RoiForm of(const Op& op);
};

struct SampleRange {
  int64_t begin, end;
};

/// One axis of a box, in elements of the image.
template <class C>
struct BinAxis {
  C start, bin;
  int64_t samples;  ///< of each bin; 0 if the box has no size

  ESPALIER_HD BinAxis(C low, C high, C scale, int64_t bins, int64_t samples_wanted, bool aligned) {
    const C offset = aligned ? C(0.5) : C(0);
    start = low * scale - offset;
    C length = (high * scale - offset) - start;
    if (!aligned && !(length >= C(1))) length = C(1);
    bin = length / static_cast<C>(bins);
    samples = samples_wanted;
    if (samples > 0) return;
    if (!(bin > C(0)))
      samples = 0;
    else if (bin >= static_cast<C>(most_samples_of_a_bin))
      samples = most_samples_of_a_bin;
    else
      samples = static_cast<int64_t>(bin) + (static_cast<C>(static_cast<int64_t>(bin)) < bin ? 1 : 0);
  }
  ESPALIER_HD C at(int64_t number, int64_t sample) const {
    return start + static_cast<C>(number) * bin +
           (static_cast<C>(sample) + C(0.5)) * bin / static_cast<C>(samples);
  }
  /// The samples of a bin at places from `low` to `high`: others are passed over where there are many, of
  /// which the image may have few.
  ESPALIER_HD SampleRange between(int64_t number, C low, C high) const {
    if (samples <= few_samples) return {0, samples};
    const bool rises = bin >= C(0);
    return {first_sample(number, [=](C at) { return rises ? at >= low : at <= high; }),
            first_sample(number, [=](C at) { return rises ? at > high : at < low; })};
  }
  /// Those that read an element of an axis.
  ESPALIER_HD SampleRange inside(int64_t number, int64_t size) const {
    return between(number, C(-1), static_cast<C>(size));
  }

 private:
  static constexpr int64_t few_samples = 32;

  /// The first sample of a bin whose place passes a test, as then do all behind it; `samples` if none does.
  template <class F>
  ESPALIER_HD int64_t first_sample(int64_t number, F&& passes) const {
    int64_t begin = 0, end = samples;
    while (begin < end) {
      const int64_t middle = (begin + end) / 2;
      if (passes(at(number, middle)))
        end = middle;
      else
        begin = middle + 1;
    }
    return begin;
  }
};

/// The two elements of an axis that a sample reads, and how much each counts: neither, further than one
/// element outside of the axis.
template <class C>
struct AxisTap {
  int64_t low = 0, high = 0;
  C low_share = C(0), high_share = C(0);

  ESPALIER_HD AxisTap(C at, int64_t size) {
    if (!(at >= C(-1) && at <= static_cast<C>(size))) return;
    if (at < C(0)) at = C(0);
    low = static_cast<int64_t>(at);
    if (low >= size - 1) {
      low = high = size - 1;
      low_share = C(1);
      return;
    }
    high = low + 1;
    high_share = at - static_cast<C>(low);
    low_share = C(1) - high_share;
  }
  /// How much element i counts.
  ESPALIER_HD C share(int64_t i) const {
    return (i == low ? low_share : C(0)) + (i == high ? high_share : C(0));
  }
};

/// The largest weighted corner of samples: the first of equal ones; a NaN is larger than all numbers.
template <class C>
struct LargestCorner {
  int64_t place = -1;  ///< in the plane of the image; -1: a corner that counts 0, or a sample outside
  C share = C(0);

  ESPALIER_HD void add(int64_t at, C weight, C element) {
    const bool counts = weight != C(0);
    const C value = counts ? weight * element : C(0);
    if (any_ && !(value > largest_ || (value != value && largest_ == largest_))) return;
    any_ = true;
    largest_ = value;
    place = counts ? at : -1;
    share = weight;
  }
  template <class T>
  ESPALIER_HD void add(const T* plane, int64_t width, const AxisTap<C>& y, const AxisTap<C>& x) {
    const auto corner = [&](int64_t row, int64_t column, C weight) {
      add(row * width + column, weight, static_cast<C>(plane[row * width + column]));
    };
    corner(y.low, x.low, y.low_share * x.low_share);
    corner(y.low, x.high, y.low_share * x.high_share);
    corner(y.high, x.low, y.high_share * x.low_share);
    corner(y.high, x.high, y.high_share * x.high_share);
  }
  ESPALIER_HD void add_outside() { add(-1, C(0), C(0)); }

 private:
  C largest_ = C(0);
  bool any_ = false;
};

/// The elements, from `begin` to `end`, of a bin of a box along one axis that is rounded to whole elements.
struct WholeBin {
  int64_t begin, end;

  template <class C>
  ESPALIER_HD WholeBin(C low, C high, C scale, int64_t number, int64_t bins, int64_t size) {
    const C first = nearest(low * scale), last = nearest(high * scale);
    const C length = last - first + C(1) > C(1) ? last - first + C(1) : C(1);
    const C bin = length / static_cast<C>(bins);
    begin = within(floor_of(static_cast<C>(number) * bin) + first, size);
    end = within(-floor_of(-(static_cast<C>(number + 1) * bin)) + first, size);
  }

 private:
  template <class C>
  ESPALIER_HD static C floor_of(C x) {
    return std::floor(x);
  }
  /// Halves away from zero.
  template <class C>
  ESPALIER_HD static C nearest(C x) {
    return std::round(x);
  }
  template <class C>
  ESPALIER_HD static int64_t within(C x, int64_t size) {
    if (!(x > C(0))) return 0;
    return x < static_cast<C>(size) ? static_cast<int64_t>(x) : size;
  }
};

}  // namespace espalier
