// RmsNorm: scales every row to a mean square of 1.
#pragma once
#include <concepts>

#include "espalier/nn/layer.h"

namespace espalier::nn {

struct RmsNormOptions {
  double epsilon = 1e-6;
  DType dtype = float32;  ///< of the parameter: a real one
};

/// x / √(mean x² + epsilon) along the last axis, times `weight` [width], which starts as ones. 16-bit rows
/// are computed in float32. Zhang and Sennrich, Root mean square layer normalization, 2019. An input of
/// another width, or a scalar, throws ShapeError; another dtype TypeError. Throws Error unless epsilon > 0.
class RmsNorm : public LayerOf<RmsNorm> {
 public:
  /// The parameter has the width and dtype of the first input, which creates it.
  explicit RmsNorm(double epsilon = 1e-6, Where where = Where::current());
  /// With the width: the parameter is there at once, on the CPU. Throws Error unless width > 0.
  template <std::integral Width>
  explicit RmsNorm(Width width, RmsNormOptions options = {}, Where where = Where::current())
      : RmsNorm(static_cast<int64_t>(width), options, &where) {}

 private:
  RmsNorm(int64_t width, const RmsNormOptions& options, const Where* where);
};

}  // namespace espalier::nn
