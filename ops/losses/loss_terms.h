// What losses have in common: checks, precision, weights, reductions.
#pragma once
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/functions/loss.h"
#include "espalier/ops/widened.h"

namespace espalier::detail {

/// log p, at least −100: without a gradient where p is below 10⁻³⁸.
Variable bounded_log(const Variable& p);

/// The losses of the elements as the options ask; a mean divides by the sum of `counted`, if that is defined.
Variable reduced(const Variable& losses, const Variable& counted, LossReduction reduction);
/// The same, with each loss times its weight before. Throws ShapeError unless weights are broadcast to the
/// losses, TypeError unless they are real.
Variable weighted(std::string_view loss, const Variable& losses, const Variable& weights,
                  LossReduction reduction);

/// The second, whose shape is that of the first in each batch. Throws ShapeError or TypeError unless both
/// have one shape and one real dtype.
Variable paired(std::string_view loss, const Variable& first, const Variable& second);
/// Throws TypeError unless it is real.
void check_real(std::string_view loss, const Variable& x);
/// Throws Error unless `value` is finite and above 0.
void check_positive(std::string_view loss, std::string_view setting, double value);
void check_power(std::string_view loss, int power);
/// Throws unless weights are [classes] of reals.
void check_class_weights(std::string_view loss, const Variable& weights, const Variable& scores);

/// `f(prediction, target)`, both in float32 at least, in the dtype of the prediction, with its line. A number
/// as target is for all elements.
template <class F>
Variable loss_of(std::string_view loss, const Operand& prediction, const Operand& target, F&& f) {
  const CallScope scope(prediction.where(), loss);
  return located(prediction.where(), [&] {
    const Variable& p = prediction.defined(loss);
    check_real(loss, p);
    const Variable t = target.is_number() ? target.like(p) : paired(loss, p, target.defined(loss));
    return rounded(f(widened(p), widened(t)), p.dtype());
  });
}

}  // namespace espalier::detail
