// Elementwise powers, exponentials and logarithms beyond those of elementary.cpp.
#include "espalier/ops/functions/exponential.h"

#include <numbers>

#include "espalier/core/op_registry.h"
#include "espalier/core/scalar_functions.h"
#include "espalier/ops/elementwise/elementary_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

using Rsqrt = ByOutput<"rsqrt", scalar::Rsqrt, [](Var g, Var y) { return g * (cube(y) * -0.5); }>;
using Reciprocal =
    ByOutput<"reciprocal", scalar::Reciprocal, [](Var g, Var y) { return negative(g * square(y)); }>;
using Exp2 = ByOutput<"exp2", scalar::Exp2, [](Var g, Var y) { return g * (y * std::numbers::ln2); }>;
using Expm1 = ByOutput<"expm1", scalar::Expm1, [](Var g, Var y) { return g * (y + 1.0); }>;
using Log1p = ByInput<"log1p", scalar::Log1p, [](Var g, Var x) { return g / (x + 1.0); }>;
using Log2 = ByInput<"log2", scalar::Log2, [](Var g, Var x) { return g / (x * std::numbers::ln2); }>;
using Log10 = ByInput<"log10", scalar::Log10, [](Var g, Var x) { return g / (x * std::numbers::ln10); }>;

struct Cube : UnaryOp<scalar::Cube, Numbers> {
  std::string_view name() const override { return "cube"; }
  Gradients gradient(const GradientRule& rule) const override {
    return {rule.output_gradient() * (square(rule.input()) * 3.0)};
  }
};

struct LogAddExp : BinaryOp<scalar::LogAddExp, Reals> {
  std::string_view name() const override { return "logaddexp"; }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    const Variable apart = rule.input(0) - rule.input(1);
    return {rule.wants(0) ? g * sigmoid(apart) : Variable(),
            rule.wants(1) ? g * sigmoid(negative(apart)) : Variable()};
  }
};

}  // namespace

Variable rsqrt(const Operand& x) { return apply_unary<Rsqrt>(x); }
Variable reciprocal(const Operand& x) { return apply_unary<Reciprocal>(x); }
Variable cube(const Operand& x) { return apply_unary<Cube>(x); }
Variable exp2(const Operand& x) { return apply_unary<Exp2>(x); }
Variable expm1(const Operand& x) { return apply_unary<Expm1>(x); }
Variable log1p(const Operand& x) { return apply_unary<Log1p>(x); }
Variable log2(const Operand& x) { return apply_unary<Log2>(x); }
Variable log10(const Operand& x) { return apply_unary<Log10>(x); }
Variable logaddexp(const Operand& a, const Operand& b) { return apply_binary<LogAddExp>(a, b); }

void add_exponential_ops(OpRegistry& ops) {
  ops.add<Rsqrt, Reciprocal, Cube, Exp2, Expm1, Log1p, Log2, Log10, LogAddExp>();
}

}  // namespace espalier
