// Images in other sizes.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

enum class Interpolation : uint8_t {
  nearest,        ///< the element at ⌊i · in / out⌋
  nearest_exact,  ///< the element whose centre is nearest: at ⌊(i + 1/2) · in / out⌋
  linear,         ///< between two elements along each axis: bilinear in images
  cubic  ///< between four along each axis, with a = −3/4. Keys, Cubic convolution interpolation, 1981
};
struct InterpolateOptions {
  std::vector<int64_t> size = {};  ///< of the result, a number for each axis or one for all
  std::vector<double> scale = {};  ///< or by how much axes grow: the size is ⌊size · scale⌋
  Interpolation mode = Interpolation::nearest;
  /// The centres of the outermost elements stay where they are; else the outer edges do. For linear and
  /// cubic.
  bool align_corners = false;
};
/// `x` [n, channels, sizes…] with other sizes, one axis after the other: PyTorch's interpolate, for any
/// number of axes. Elements beyond the border are those at the border. For reals; 16-bit ones are computed in
/// float32. Open sizes (-1), also halved ones, get a size, or are scaled by whole numbers or their
/// reciprocals (else UnsupportedError). ShapeError for another rank, and for a result or an image without
/// elements along an axis; Error unless either sizes or scales are given and above 0.
Variable interpolate(const Operand& x, const InterpolateOptions& options);

}  // namespace espalier
