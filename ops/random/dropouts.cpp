#include "espalier/ops/functions/dropouts.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

namespace {

const Variable& checked_for_dropout(const Operand& x, double rate, std::string_view function) {
  const Variable& v = x.defined(function);
  check_dtype<Reals>({v.dtype(), v.shape()}, function);
  if (!(rate >= 0 && rate < 1))
    throw Error(fmt::format("{}: the rate must be in [0, 1), not {}", function, rate));
  return v;
}

/// `whole` has the elements that are dropped or kept together, as 1.
Variable alpha_dropped(const Variable& x, const Variable& whole, double rate) {
  constexpr double lowest = -1.7580993408473766;  // −λα of selu
  const double a = 1 / std::sqrt((1 - rate) * (1 + rate * lowest * lowest)), b = -a * rate * lowest;
  // 0, 1 / (1 − rate), or in plans of inference 1, where elements stay as they are.
  const Variable kept = dropout(whole, rate);
  const Variable dropped = where(greater(kept, 0.0), x * a + b, full_like(x, a * lowest + b));
  return where(equal(kept, 1.0), x, dropped);
}

}  // namespace

Variable alpha_dropout(const Operand& x, double rate) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& v = checked_for_dropout(x, rate, "alpha_dropout");
    return rate == 0 ? v : alpha_dropped(v, ones_like(v), rate);
  });
}

Variable feature_alpha_dropout(const Operand& x, double rate) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const Variable& v = checked_for_dropout(x, rate, "feature_alpha_dropout");
    if (v.rank() < 2)
      throw ShapeError(
          fmt::format("feature_alpha_dropout: {} has no channels, as [n, channels, ...]", v.shape().str()));
    if (rate == 0) return v;
    Dims places;
    for (size_t axis = 2; axis < v.rank(); ++axis) places.push_back(static_cast<int64_t>(axis));
    // Only the shape of the sum is read.
    return alpha_dropped(v, ones_like(places.empty() ? v : sum(v, Axes(places), true)), rate);
  });
}

}  // namespace espalier
