// Elementwise elementary functions and activations.
#include <numbers>

#include "espalier/core/op_registry.h"
#include "espalier/core/scalar_activations.h"
#include "espalier/ops/elementwise/elementary_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

using Exp = ByOutput<"exp", scalar::Exp, [](Var g, Var y) { return g * y; }>;
using Sqrt = ByOutput<"sqrt", scalar::Sqrt, [](Var g, Var y) { return g * 0.5 / y; }>;
using Tanh = ByOutput<"tanh", scalar::Tanh, [](Var g, Var y) { return g * (1.0 - square(y)); }, follows>;
using Sigmoid =
    ByOutput<"sigmoid", scalar::Sigmoid, [](Var g, Var y) { return g * (y * (1.0 - y)); }, follows>;
using Relu = ByOutput<"relu", scalar::Relu, [](Var g, Var y) { return relu_gradient(g, y); }, follows>;
using Log = ByInput<"log", scalar::Log, [](Var g, Var x) { return g / x; }>;
using Sin = ByInput<"sin", scalar::Sin, [](Var g, Var x) { return g * cos(x); }>;
using Cos = ByInput<"cos", scalar::Cos, [](Var g, Var x) { return negative(g * sin(x)); }>;
using Gelu = ByInput<"gelu", scalar::Gelu, [](Var g, Var x) { return gelu_gradient(g, x); }, follows>;
using Erf = ByInput<"erf", scalar::Erf, [](Var g, Var x) {
  return g * (2 * std::numbers::inv_sqrtpi * exp(negative(square(x))));
}>;

/// Has half the memory traffic of a comparison and a `where`.
struct ReluGradient : BinaryOp<scalar::ReluGradient, Reals> {
  ReluGradient() : BinaryOp({.precision = OpPrecision::follows, .gradient_reads = InputSet::only(1)}) {}
  std::string_view name() const override { return "relu_gradient"; }
  Gradients gradient(const GradientRule& rule) const override {
    return {rule.wants(0) ? relu_gradient(rule.output_gradient(), rule.input(1)) : Variable(), Variable()};
  }
};

/// One pass over memory instead of the ten of its composition.
struct GeluGradient : BinaryOp<scalar::GeluGradient, Reals> {
  GeluGradient() : BinaryOp({.precision = OpPrecision::follows}) {}
  std::string_view name() const override { return "gelu_gradient"; }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable &g = rule.output_gradient(), x = rule.input(1);
    Gradients result(2);
    if (rule.wants(0)) result[0] = gelu_gradient(g, x);
    if (rule.wants(1)) {
      const Variable squares = square(x);
      const Variable density = exp(squares * -0.5) * (std::numbers::inv_sqrtpi / std::numbers::sqrt2);
      result[1] = g * rule.input(0) * (density * (2.0 - squares));
    }
    return result;
  }
};

}  // namespace

Variable exp(const Operand& x) { return apply_unary<Exp>(x); }
Variable log(const Operand& x) { return apply_unary<Log>(x); }
Variable sqrt(const Operand& x) { return apply_unary<Sqrt>(x); }
Variable sin(const Operand& x) { return apply_unary<Sin>(x); }
Variable cos(const Operand& x) { return apply_unary<Cos>(x); }
Variable tanh(const Operand& x) { return apply_unary<Tanh>(x); }
Variable sigmoid(const Operand& x) { return apply_unary<Sigmoid>(x); }
Variable relu(const Operand& x) { return apply_unary<Relu>(x); }
Variable erf(const Operand& x) { return apply_unary<Erf>(x); }
Variable gelu(const Operand& x) { return apply_unary<Gelu>(x); }
Variable gelu_gradient(const Variable& g, const Variable& x) { return apply_binary<GeluGradient>(g, x); }
Variable relu_gradient(const Variable& g, const Variable& y) { return apply_binary<ReluGradient>(g, y); }

void add_elementary_ops(OpRegistry& ops) {
  ops.add<Exp, Log, Sqrt, Sin, Cos, Tanh, Sigmoid, Relu, ReluGradient, Erf, Gelu, GeluGradient>();
}

}  // namespace espalier
