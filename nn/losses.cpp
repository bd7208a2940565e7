#include "espalier/nn/losses.h"

#include "espalier/core/node.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

Variable MeanSquared::operator()(const Variable& prediction, const Variable& target, Where where) const {
  CallScope scope(where);
  return mean_squared_error({prediction, where}, {target, where});
}

Variable SoftmaxCrossEntropy::operator()(const Variable& prediction, const Variable& target,
                                         Where where) const {
  CallScope scope(where);
  return softmax_cross_entropy({prediction, where}, {target, where}, options_);
}

Variable ConstantLoss::operator()(const Variable& x, Where where) const {
  CallScope scope(where);
  return sum({x, where});
}

}  // namespace espalier::nn
