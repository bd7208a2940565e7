#include "espalier/ops/losses/loss_terms.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/ops/losses/checked_target.h"
#include "espalier/ops/ops.h"

namespace espalier::detail {

Variable bounded_log(const Variable& p) {
  const Variable vanishes = less(p, 1e-38);
  return where(vanishes, full_like(p, -100.0), log(where(vanishes, ones_like(p), p)));
}

Variable reduced(const Variable& losses, const Variable& counted, LossReduction reduction) {
  if (reduction == LossReduction::none) return losses;
  if (reduction == LossReduction::sum) return sum(losses);
  // Each element is divided, so that on replicas only the sum of the weights is exchanged beforehand.
  return counted.defined() ? sum(losses / sum(counted)) : mean(losses);
}

Variable weighted(std::string_view loss, const Variable& losses, const Variable& weights,
                  LossReduction reduction) {
  if (!weights.defined()) return reduced(losses, {}, reduction);
  if (!is_real(weights.dtype()))
    throw TypeError(fmt::format("{}: weights are real numbers, not {}", loss, name(weights.dtype())));
  const Variable each = checked_weights(weights, losses, loss);
  return reduced(losses * rounded(each, losses.dtype()), {}, reduction);
}

Variable paired(std::string_view loss, const Variable& first, const Variable& second) {
  if (!(first.shape() == second.shape()))
    throw ShapeError(fmt::format("{}: operands of shapes {} and {} differ", loss, first.shape().str(),
                                 second.shape().str()));
  if (first.dtype() != second.dtype() || !is_real(first.dtype()))
    throw TypeError(fmt::format("{}: operands of {} and {} must be of one real type; cast() one of them",
                                loss, name(first.dtype()), name(second.dtype())));
  return checked_target(second, first, loss);
}

void check_real(std::string_view loss, const Variable& x) {
  if (!is_real(x.dtype()))
    throw TypeError(fmt::format("{}: an operand of shape {} is {}; it must be of a real type", loss,
                                x.shape().str(), name(x.dtype())));
}

void check_positive(std::string_view loss, std::string_view setting, double value) {
  if (!(value > 0 && std::isfinite(value)))
    throw Error(fmt::format("{}: {} is {}; it must be finite and above 0", loss, setting, value));
}

void check_power(std::string_view loss, int power) {
  if (power != 1 && power != 2) throw Error(fmt::format("{}: power is {}; it must be 1 or 2", loss, power));
}

void check_class_weights(std::string_view loss, const Variable& weights, const Variable& scores) {
  if (!weights.defined()) return;
  if (scores.rank() == 0 || !(weights.shape() == Shape{scores.shape()[-1]}))
    throw ShapeError(fmt::format("{}: class weights of shape {} do not go with scores of shape {}", loss,
                                 weights.shape().str(), scores.shape().str()));
  check_real(loss, weights);
}

}  // namespace espalier::detail
