// Images as PNG.
#pragma once
#include <string>

#include "espalier/core/tensor.h"

namespace espalier {

struct PngImage {
  int64_t height, width;
  int64_t channels;  ///< 1: grey, 3: RGB, 4: RGB and alpha
  std::string bytes;
};

/// An image [height, width] or [height, width, channels] with 1, 3 or 4 channels, without compression
/// (PNG, third edition, W3C). Reals are from 0 to 1, integers from 0 to 255, what is outside is clamped, and
/// NaN is 0. Throws ShapeError.
PngImage png_of(const Tensor& image);

}  // namespace espalier
