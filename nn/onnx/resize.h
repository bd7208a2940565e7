// One axis in another size, as a matrix.
#pragma once
#include <cstdint>
#include <string>

#include "espalier/core/tensor.h"

namespace espalier::onnx {

struct ResizedAxis {
  int64_t in = 0, out = 0;
  double scale = 1;           ///< elements of the result for each of the axis
  double begin = 0, end = 1;  ///< of the region that tf_crop_and_resize takes, as parts of the axis
};
struct ResizeMode {
  std::string interpolation = "nearest";   ///< nearest, linear or cubic
  std::string coordinates = "half_pixel";  ///< as ONNX names them
  std::string rounding = "round_prefer_floor";
  double cubic = -0.75;
  bool exclude_outside = false, antialias = false;
};
/// The weights [out, in] of the elements of the axis, and [out] bools of those results that are outside of
/// it.
struct ResizeWeights {
  Tensor weights, outside;
};
/// Throws FileError for an unknown mode.
ResizeWeights resize_weights(const ResizedAxis& axis, const ResizeMode& mode);

}  // namespace espalier::onnx
