// Bias: adds a learned vector.
#pragma once
#include <concepts>

#include "espalier/nn/layer.h"

namespace espalier::nn {

/// x + bias along the last axis. The parameter `bias` [width] starts at 0. An input of another width, or a
/// scalar, throws ShapeError; another dtype TypeError.
class Bias : public LayerOf<Bias> {
 public:
  /// The width and dtype are those of the first input.
  Bias();
  /// With the width: the parameter is there at once, on the CPU. Throws Error unless width > 0.
  explicit Bias(int64_t width, DType dtype = float32, Where where = Where::current());
};

}  // namespace espalier::nn
