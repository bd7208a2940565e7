// Elementwise activations with different formulas on either side of some points.
#include "espalier/ops/functions/piecewise_activation.h"

#include "espalier/core/node.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/open_note.h"
#include "espalier/core/scalar_activations.h"
#include "espalier/ops/elementwise/bounds.h"
#include "espalier/ops/elementwise/elementary_op.h"
#include "espalier/ops/elementwise/random_slopes.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

struct LeakyRelu : BinaryOp<scalar::LeakyRelu, Reals> {
  LeakyRelu() : BinaryOp({.precision = OpPrecision::follows}) {}
  std::string_view name() const override { return "leaky_relu"; }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    const Variable above = greater(rule.input(0), 0.0);
    return {rule.wants(0) ? where(above, g, g * rule.input(1)) : Variable(),
            rule.wants(1) ? where(above, 0.0, g * rule.input(0)) : Variable()};
  }
};

/// The slope of an exponential branch: its own slope is `steeper(y, alpha)` below 0, and 0 elsewhere, as in
/// PyTorch.
template <OpName op_name, class F, auto steeper>
struct ExponentialSlope : BinaryOp<F, Reals> {
  ExponentialSlope()
      : BinaryOp<F, Reals>({.precision = OpPrecision::follows, .gradient_reads_output = true}) {}
  std::string_view name() const override { return op_name.text; }
  Gradients gradient(const GradientRule& rule) const override {
    if (!rule.wants(0)) return {Variable(), Variable()};
    const Variable slope = steeper(rule.output(), rule.input(1));
    return {rule.output_gradient() * where(greater_equal(rule.input(0), 0.0), 0.0, slope), Variable()};
  }
};
using EluSlope = ExponentialSlope<"elu_slope", scalar::EluSlope, [](Var y, Var) { return y; }>;
using Elu = WithNumber<"elu", scalar::Elu,
                       [](Var g, Var x, Var alpha) { return g * apply_binary<EluSlope>(x, alpha); }>;
using CeluSlope =
    ExponentialSlope<"celu_slope", scalar::CeluSlope, [](Var y, Var alpha) { return y / alpha; }>;
using Celu = WithNumber<"celu", scalar::Celu,
                        [](Var g, Var x, Var alpha) { return g * apply_binary<CeluSlope>(x, alpha); }>;

struct SeluSlope : UnaryOp<scalar::SeluSlope, Reals> {
  SeluSlope() : UnaryOp({.precision = OpPrecision::follows, .gradient_reads_output = true}) {}
  std::string_view name() const override { return "selu_slope"; }
  Gradients gradient(const GradientRule& rule) const override {
    return {rule.output_gradient() * where(greater_equal(rule.input(), 0.0), 0.0, rule.output())};
  }
};
using Selu =
    ByInput<"selu", scalar::Selu, [](Var g, Var x) { return g * apply_unary<SeluSlope>(x); }, follows>;

using HardSigmoid =
    ByInput<"hardsigmoid", scalar::HardSigmoid,
            [](Var g, Var x) { return where(less(abs(x), 3.0), g * (1.0 / 6), 0.0); }, follows>;
using HardSwish =
    ByInput<"hardswish", scalar::HardSwish,
            [](Var g, Var x) {
              return where(less_equal(x, -3.0), 0.0, where(less(x, 3.0), g * (x * (1.0 / 3) + 0.5), g));
            },
            follows>;

constexpr auto outside_shrunk = [](Var g, Var x, Var lambda) {
  return where(less_equal(abs(x), lambda), 0.0, g);
};
using SoftShrink = WithNumber<"softshrink", scalar::SoftShrink, outside_shrunk>;
using HardShrink = WithNumber<"hardshrink", scalar::HardShrink, outside_shrunk>;

/// Throws Error naming the function unless the condition holds.
void demand(bool condition, const Operand& x, std::string_view message) {
  if (!condition) located(x.where(), [&] { throw Error(std::string(message)); });
}

}  // namespace

Variable leaky_relu(const Operand& x, double slope) { return apply_binary<LeakyRelu>(x, slope); }

Variable prelu(const Operand& x, const Operand& slopes) {
  const CallScope scope(x.where());
  const Variable& v = x.defined("prelu");
  if (slopes.is_number()) return apply_binary<LeakyRelu>(v, slopes);
  const Variable& s = slopes.defined("prelu");
  if (s.rank() == 0) return apply_binary<LeakyRelu>(v, s);
  if (v.rank() == 0 && s.shape() == Shape{1}) return apply_binary<LeakyRelu>(v, reshape(s, Shape{}));
  const size_t axis = v.rank() > 1 ? 1 : 0;
  const bool fits =
      s.rank() == 1 && v.rank() > 0 && (s.shape()[0] == 1 || s.shape()[0] == v.shape().dims()[axis]);
  if (!fits)
    located(x.where(), [&] {
      throw ShapeError(
          fmt::format("prelu: slopes of shape {} do not go with the channels of shape {}{}", s.shape().str(),
                      v.shape().str(),
                      s.rank() == 1 && v.rank() > 0 ? open_note(s.shape()[0], v.shape().dims()[axis]) : ""));
    });
  Dims sizes{s.shape()[0]};
  for (size_t i = axis + 1; i < v.rank(); ++i) sizes.push_back(1);
  return apply_binary<LeakyRelu>(v, reshape(s, Shape(sizes)));
}

Variable rrelu(const Operand& x, double lower, double upper) {
  const CallScope scope(x.where());
  const Variable& v = x.defined("rrelu");
  demand(lower <= upper, x, fmt::format("rrelu: the bounds {} and {} are not in order", lower, upper));
  return apply_binary<LeakyRelu>(v, rand_in_training_like(v) * (upper - lower) + lower);
}

Variable elu(const Operand& x, double alpha) { return apply_binary<Elu>(x, alpha); }
Variable celu(const Operand& x, double alpha) {
  demand(alpha != 0, x, "celu: alpha must not be 0");
  return apply_binary<Celu>(x, alpha);
}
Variable selu(const Operand& x) { return apply_unary<Selu>(x); }

Variable relu6(const Operand& x) { return saturate(x, 0, 6); }
Variable hardtanh(const Operand& x, double low, double high) {
  demand(low <= high, x, fmt::format("hardtanh: the bounds {} and {} are not in order", low, high));
  return saturate(x, low, high);
}
Variable hardsigmoid(const Operand& x) { return apply_unary<HardSigmoid>(x); }
Variable hardswish(const Operand& x) { return apply_unary<HardSwish>(x); }
Variable softshrink(const Operand& x, double lambda) {
  demand(lambda >= 0, x, fmt::format("softshrink: lambda is {}; it must not be negative", lambda));
  return apply_binary<SoftShrink>(x, lambda);
}
Variable hardshrink(const Operand& x, double lambda) { return apply_binary<HardShrink>(x, lambda); }
Variable threshold(const Operand& x, double bound, double value) {
  const CallScope scope(x.where());
  const Variable& v = x.defined("threshold");
  return where(less_equal(v, bound), value, v);
}

void add_piecewise_activation_ops(OpRegistry& ops) {
  ops.add<LeakyRelu, Elu, EluSlope, Celu, CeluSlope, Selu, SeluSlope, HardSigmoid, HardSwish, SoftShrink,
          HardShrink>();
}

}  // namespace espalier
