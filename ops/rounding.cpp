// Elementwise rounding, divisions with integer quotients, bounds, and what is no finite number.
#include "espalier/ops/functions/rounding.h"

#include <cmath>
#include <limits>

#include "espalier/core/node.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/scalar_integers.h"
#include "espalier/ops/bounds.h"
#include "espalier/ops/elementary_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

using Ceil = FlatUnary<"ceil", scalar::Ceil, Numbers>;
using Round = FlatUnary<"round", scalar::Round, Numbers>;
using Trunc = FlatUnary<"trunc", scalar::Trunc, Numbers>;
using FloorDivide = FlatBinary<"floor_divide", scalar::FloorDivide, Numbers>;
using Heaviside = FlatBinary<"heaviside", scalar::Heaviside, Numbers>;
using IsNan = FlatUnary<"isnan", scalar::IsNan, Numbers, bool>;
using IsInf = FlatUnary<"isinf", scalar::IsInf, Numbers, bool>;
using IsFinite = FlatUnary<"isfinite", scalar::IsFinite, Numbers, bool>;

/// The rest of a division: its slope by b is minus the quotient as `round_quotient` rounds it.
template <OpName op_name, class F, auto round_quotient>
struct Rest : BinaryOp<F, Numbers> {
  std::string_view name() const override { return op_name.text; }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    return {g, rule.wants(1) ? negative(g * round_quotient(rule.input(0) / rule.input(1))) : Variable()};
  }
};
using Fmod = Rest<"fmod", scalar::Fmod, [](const Variable& quotient) { return trunc(quotient); }>;
using Remainder =
    Rest<"remainder", scalar::Remainder, [](const Variable& quotient) { return floor(quotient); }>;

/// The larger or smaller of x and a bound. `passes` is true where the gradient goes to x, and `stops` where
/// it goes to the bound.
template <OpName op_name, class F, auto passes, auto stops>
struct Clamp : BinaryOp<F, Numbers> {
  Clamp() : BinaryOp<F, Numbers>({.precision = OpPrecision::follows}) {}
  std::string_view name() const override { return op_name.text; }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    const Variable x = rule.input(0), bound = rule.input(1);
    return {rule.wants(0) ? where(passes(x, bound), g, 0.0) : Variable(),
            rule.wants(1) ? where(stops(x, bound), g, 0.0) : Variable()};
  }
};
using ClampMin = Clamp<"clamp_min", scalar::Maximum, greater_equal, less>;
using ClampMax = Clamp<"clamp_max", scalar::Minimum, less_equal, greater>;

/// The same, but at the bound itself no gradient passes. No gradient passes to the bound.
template <OpName op_name, class F, auto outside>
using SaturateOp = WithNumber<op_name, F, [](const Variable& g, const Variable& x, const Variable& bound) {
  return where(outside(x, bound), 0.0, g);
}>;
using SaturateMin = SaturateOp<"saturate_min", scalar::Maximum, less_equal>;
using SaturateMax = SaturateOp<"saturate_max", scalar::Minimum, greater_equal>;

double largest_number(DType dtype) {
  switch (dtype) {
    case DType::float16: return 65504;
    case DType::bfloat16: return 0x1.fep127;
    case DType::float32: return std::numeric_limits<float>::max();
    default: return std::numeric_limits<double>::max();
  }
}

}  // namespace

Variable ceil(const Operand& x) { return apply_unary<Ceil>(x); }
Variable round(const Operand& x) { return apply_unary<Round>(x); }
Variable trunc(const Operand& x) { return apply_unary<Trunc>(x); }
Variable frac(const Operand& x) {
  const CallScope scope(x.where());
  const Variable& v = x.defined("frac");
  if (!is_real(v.dtype())) located(x.where(), [&] { check_dtype<Reals>({v.dtype(), v.shape()}, "frac"); });
  return v - trunc(v);
}

Variable floor_divide(const Operand& a, const Operand& b) { return apply_binary<FloorDivide>(a, b); }
Variable remainder(const Operand& a, const Operand& b) { return apply_binary<Remainder>(a, b); }
Variable fmod(const Operand& a, const Operand& b) { return apply_binary<Fmod>(a, b); }

Variable clamp_min(const Operand& x, const Operand& low) { return apply_binary<ClampMin>(x, low); }
Variable clamp_max(const Operand& x, const Operand& high) { return apply_binary<ClampMax>(x, high); }
Variable clamp(const Operand& x, const Operand& low, const Operand& high) {
  const CallScope scope(x.where());
  return clamp_max(clamp_min(x, low), high);
}
Variable saturate(const Operand& x, double low, double high) {
  const CallScope scope(x.where());
  return apply_binary<SaturateMax>(apply_binary<SaturateMin>(x, low), high);
}

Variable lerp(const Operand& a, const Operand& b, const Operand& weight) {
  const CallScope scope(a.where());
  const Variable& known = a.is_number() ? b.defined("lerp") : a.defined("lerp");
  const Variable from = a.like(known), to = b.like(known), difference = to - from;
  if (weight.is_number()) {
    const double w = weight.number();
    return std::abs(w) < 0.5 ? from + difference * w : to - difference * (1 - w);
  }
  const Variable& w = weight.defined("lerp");
  return where(less(abs(w), 0.5), from + w * difference, to - difference * (1.0 - w));
}
Variable heaviside(const Operand& x, const Operand& at_zero) { return apply_binary<Heaviside>(x, at_zero); }

Variable isnan(const Operand& x) { return apply_unary<IsNan>(x); }
Variable isinf(const Operand& x) { return apply_unary<IsInf>(x); }
Variable isposinf(const Operand& x) {
  const CallScope scope(x.where());
  const Variable& v = x.defined("isposinf");
  return logical_and(isinf(v), greater(v, 0));
}
Variable isneginf(const Operand& x) {
  const CallScope scope(x.where());
  const Variable& v = x.defined("isneginf");
  return logical_and(isinf(v), less(v, 0));
}
Variable isfinite(const Operand& x) { return apply_unary<IsFinite>(x); }
Variable nan_to_num(const Operand& x, double nan, std::optional<double> infinity,
                    std::optional<double> negative_infinity) {
  const CallScope scope(x.where());
  const Variable& v = x.defined("nan_to_num");
  if (!is_real(v.dtype())) {
    located(x.where(), [&] { check_dtype<Numbers>({v.dtype(), v.shape()}, "nan_to_num"); });
    return v;
  }
  const double largest = largest_number(v.dtype());
  const Variable bounded = where(
      isinf(v),
      where(greater(v, 0.0), infinity.value_or(largest), full_like(v, negative_infinity.value_or(-largest))),
      v);
  return where(isnan(v), nan, bounded);
}

void add_rounding_ops(OpRegistry& ops) {
  ops.add<Ceil, Round, Trunc, FloorDivide, Fmod, Remainder, Heaviside, IsNan, IsInf, IsFinite, ClampMin,
          ClampMax, SaturateMin, SaturateMax>();
}

}  // namespace espalier
