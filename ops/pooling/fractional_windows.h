// Where the windows of fractional pooling begin.
#pragma once
#include <cstdint>

#include "espalier/core/scalar.h"
#include "espalier/ops/pooling/pool_windows.h"

namespace espalier {

/// The first element of one of `count` windows of `kernel` elements along an axis of `size`. The sample, a
/// float or double in [0, 1), says how the distances between them take turns.
template <class C>
ESPALIER_HD int64_t fractional_begin(C sample, int64_t window, int64_t count, int64_t size, int64_t kernel) {
  const int64_t last = size - kernel;
  if (window + 1 >= count) return last;
  if (!(sample >= C(0))) sample = C(0);
  if (sample > C(1)) sample = C(1);
  const C distance = static_cast<C>(last) / static_cast<C>(count - 1);
  const int64_t begin = static_cast<int64_t>((static_cast<C>(window) + sample) * distance) -
                        static_cast<int64_t>(sample * distance);
  return begin < last ? begin : last;
}

/// Axes that are pooled; missing ones come first, with one window of one element.
struct FractionalAxes {
  int64_t size[most_pooled_axes] = {1, 1, 1}, kernel[most_pooled_axes] = {1, 1, 1},
          count[most_pooled_axes] = {1, 1, 1};

  ESPALIER_HD int64_t elements() const { return size[0] * size[1] * size[2]; }  ///< of a plane
  ESPALIER_HD int64_t windows() const { return count[0] * count[1] * count[2]; }
};
/// Those of x [batch, channels, sizes…]. Throws ShapeError naming `op` where the windows do not fit.
FractionalAxes fractional_axes(const Shape& x, const Dims& kernel, const Dims& count, std::string_view op);

}  // namespace espalier
