// LayerNorm: normalizes every row, then applies a learned gain and bias. Ba et al., Layer normalization,
// 2016.
#pragma once
#include "espalier/nn/layer.h"

namespace espalier::nn {

/// (x − mean) / √(variance + epsilon) along the last axis, times `weight` plus `bias`. These parameters have
/// the width of the first input, start as ones and zeros, and have its dtype (a real one). An input
/// of another width later, or a scalar, throws ShapeError; another dtype TypeError. Throws Error unless
/// epsilon > 0.
class LayerNorm : public LayerOf<LayerNorm> {
 public:
  explicit LayerNorm(double epsilon = 1e-5, Where where = Where::current());
};

}  // namespace espalier::nn
