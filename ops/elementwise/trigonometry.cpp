// Elementwise trigonometric and hyperbolic functions.
#include "espalier/ops/functions/trigonometry.h"

#include "espalier/core/op_registry.h"
#include "espalier/core/scalar_functions.h"
#include "espalier/ops/elementwise/elementary_op.h"
#include "espalier/ops/functions/exponential.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

using Tan = ByOutput<"tan", scalar::Tan, [](Var g, Var y) { return g * (square(y) + 1.0); }>;
using Asin = ByInput<"asin", scalar::Asin, [](Var g, Var x) { return g * rsqrt(1.0 - square(x)); }>;
using Acos = ByInput<"acos", scalar::Acos, [](Var g, Var x) { return negative(g * rsqrt(1.0 - square(x))); }>;
using Atan = ByInput<"atan", scalar::Atan, [](Var g, Var x) { return g / (square(x) + 1.0); }>;
using Sinh = ByInput<"sinh", scalar::Sinh, [](Var g, Var x) { return g * cosh(x); }>;
using Cosh = ByInput<"cosh", scalar::Cosh, [](Var g, Var x) { return g * sinh(x); }>;
using Asinh = ByInput<"asinh", scalar::Asinh, [](Var g, Var x) { return g * rsqrt(square(x) + 1.0); }>;
using Acosh = ByInput<"acosh", scalar::Acosh, [](Var g, Var x) { return g * rsqrt(square(x) - 1.0); }>;
using Atanh = ByInput<"atanh", scalar::Atanh, [](Var g, Var x) { return g / (1.0 - square(x)); }>;

struct Atan2 : BinaryOp<scalar::Atan2, Reals> {
  std::string_view name() const override { return "atan2"; }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable y = rule.input(0), x = rule.input(1);
    const Variable scaled = rule.output_gradient() / (square(x) + square(y));
    return {rule.wants(0) ? scaled * x : Variable(), rule.wants(1) ? negative(scaled * y) : Variable()};
  }
};

struct Hypot : BinaryOp<scalar::Hypot, Reals> {
  Hypot() : BinaryOp({.gradient_reads_output = true}) {}
  std::string_view name() const override { return "hypot"; }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    const Variable y = rule.output();
    return {rule.wants(0) ? g * (rule.input(0) / y) : Variable(),
            rule.wants(1) ? g * (rule.input(1) / y) : Variable()};
  }
};

}  // namespace

Variable tan(const Operand& x) { return apply_unary<Tan>(x); }
Variable asin(const Operand& x) { return apply_unary<Asin>(x); }
Variable acos(const Operand& x) { return apply_unary<Acos>(x); }
Variable atan(const Operand& x) { return apply_unary<Atan>(x); }
Variable atan2(const Operand& y, const Operand& x) { return apply_binary<Atan2>(y, x); }
Variable hypot(const Operand& a, const Operand& b) { return apply_binary<Hypot>(a, b); }
Variable sinh(const Operand& x) { return apply_unary<Sinh>(x); }
Variable cosh(const Operand& x) { return apply_unary<Cosh>(x); }
Variable asinh(const Operand& x) { return apply_unary<Asinh>(x); }
Variable acosh(const Operand& x) { return apply_unary<Acosh>(x); }
Variable atanh(const Operand& x) { return apply_unary<Atanh>(x); }

void add_trigonometry_ops(OpRegistry& ops) {
  ops.add<Tan, Asin, Acos, Atan, Sinh, Cosh, Asinh, Acosh, Atanh, Atan2, Hypot>();
}

}  // namespace espalier
