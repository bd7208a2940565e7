// Dense: every output is a weighted sum of all inputs.
#pragma once
#include "espalier/nn/init.h"
#include "espalier/nn/layer.h"

namespace espalier::nn {

struct DenseOptions {
  Initializer initializer = init::KaimingUniform();  ///< of the weight; the bias starts at 0
  bool bias = true;
};

/// y = x·Wᵀ + b: [..., in] becomes [..., out]. Parameters: `weight` [out, in] and `bias` [out].
/// The input width and the dtype (a real one) come with the first call, or from a file. An input of
/// another width later, or of rank below 2, throws ShapeError; another dtype TypeError. Throws Error unless
/// out > 0.
class Dense : public LayerOf<Dense> {
 public:
  explicit Dense(int64_t out, DenseOptions options = {}, Where where = Where::current());
};

}  // namespace espalier::nn
