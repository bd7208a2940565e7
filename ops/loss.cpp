// Losses, composed of other ops.
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

Variable mean_squared_error(const Operand& prediction, const Operand& target) {
  const CallScope scope(prediction.where());
  const Variable &p = prediction.defined("mean_squared_error"), &t = target.defined("mean_squared_error");
  if (!(p.shape() == t.shape()))
    located(prediction.where(), [&] {
      throw ShapeError(
          fmt::format("mean_squared_error: a prediction of shape {} and a target of shape {} differ",
                      p.shape().str(), t.shape().str()));
    });
  return mean(square(p - t));
}

Variable softmax_cross_entropy(const Operand& logits, const Operand& labels) {
  const CallScope scope(logits.where());
  const Variable& x = logits.defined("softmax_cross_entropy");
  Variable y = labels.defined("softmax_cross_entropy");
  return located(logits.where(), [&] {
    const auto fail = [&] {
      throw ShapeError(
          fmt::format("softmax_cross_entropy: labels of shape {} and dtype {} do not go with logits of "
                      "shape {}",
                      y.shape().str(), name(y.dtype()), x.shape().str()));
    };
    if (x.rank() != 2) fail();
    if (is_real(y.dtype())) {  // probabilities
      if (!(y.shape() == x.shape())) fail();
      return negative(mean(sum(y * log_softmax(x), 1)));
    }
    if (y.rank() == 2 && y.shape()[1] == 1) y = squeeze(y, 1);
    if (y.rank() != 1 || y.shape()[0] != x.shape()[0]) fail();
    return negative(mean(pick(log_softmax(x), y)));
  });
}

}  // namespace espalier
