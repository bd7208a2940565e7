// LayerNorm: normalizes every row, then applies a learned gain and bias. Ba et al., Layer normalization,
// 2016.
#pragma once
#include <concepts>

#include "espalier/nn/layer.h"

namespace espalier::nn {

struct LayerNormOptions {
  double epsilon = 1e-5;
  bool affine = true;     ///< false: without `weight` and `bias`
  bool bias = true;       ///< false: without `bias`
  DType dtype = float32;  ///< of the parameters, if the width is given: a real one
};

/// (x − mean) / √(variance + epsilon) along the last axis, times `weight` plus `bias`, which start as ones
/// and zeros. Throws ShapeError for an input of another width or a scalar, TypeError for one of another dtype
/// than the parameters', Error unless epsilon > 0.
class LayerNorm : public LayerOf<LayerNorm> {
 public:
  /// The parameters have the width and dtype (a real one) of the first input, which creates them.
  explicit LayerNorm(double epsilon = 1e-5, Where where = Where::current())
      : LayerNorm(LayerNormOptions{.epsilon = epsilon}, where) {}
  explicit LayerNorm(const LayerNormOptions& options, Where where = Where::current());
  /// With the width: the parameters are there at once, on the CPU. Throws Error unless width > 0.
  template <std::integral Width>
  explicit LayerNorm(Width width, LayerNormOptions options = {}, Where where = Where::current())
      : LayerNorm(static_cast<int64_t>(width), options, &where) {}

 private:
  LayerNorm(int64_t width, const LayerNormOptions& options, const Where* where);
};

}  // namespace espalier::nn
