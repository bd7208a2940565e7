// L2Norm: vectors of length 1.
#pragma once
#include "espalier/nn/layer.h"

namespace espalier::nn {

/// x / max(‖x‖, epsilon) along one axis, with the Euclidean norm. Throws ShapeError when the input has no
/// such axis, Error unless epsilon > 0.
class L2Norm : public LayerOf<L2Norm> {
 public:
  explicit L2Norm(int64_t axis = -1, double epsilon = 1e-12, Where where = Where::current());
};

}  // namespace espalier::nn
