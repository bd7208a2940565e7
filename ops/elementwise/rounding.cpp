// Elementwise rounding, divisions with integer quotients, bounds, and what is no finite number.
#include "espalier/ops/functions/rounding.h"

#include <cmath>
#include <limits>

#include "espalier/core/cpu/cast_row.h"
#include "espalier/core/node.h"
#include "espalier/core/op_registry.h"
#include "espalier/core/scalar_integers.h"
#include "espalier/core/values_later.h"
#include "espalier/ops/elementwise/bounds.h"
#include "espalier/ops/elementwise/compare.h"
#include "espalier/ops/elementwise/elementary_op.h"
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
using IsPosInf = FlatUnary<"isposinf", scalar::IsPosInf, Numbers, bool>;
using IsNegInf = FlatUnary<"isneginf", scalar::IsNegInf, Numbers, bool>;
using IsFinite = FlatUnary<"isfinite", scalar::IsFinite, Numbers, bool>;

/// The rest of a division: its slope by b is minus the quotient that goes with it, which may differ from the
/// rounded quotient of the reals.
template <OpName op_name, class F, auto quotient>
struct Rest : BinaryOp<F, Numbers> {
  std::string_view name() const override { return op_name.text; }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    return {g, rule.wants(1) ? negative(g * quotient(rule.input(0), rule.input(1))) : Variable()};
  }
};
using Fmod = Rest<"fmod", scalar::Fmod, [](const Variable& a, const Variable& b) {
  const Variable size = floor_divide(abs(a), abs(b));
  return where(less(a / b, 0), negative(size), size);
}>;
using Remainder = Rest<"remainder", scalar::Remainder,
                       [](const Variable& a, const Variable& b) { return floor_divide(a, b); }>;

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

/// Throws TypeError naming `function` unless the dtype has the number; a real may round it.
void check_number(double number, DType dtype, std::string_view function) {
  const bool fits = is_real(dtype) ? !(std::abs(number) > largest_number(dtype)) || std::isinf(number)
                                   : has_number(dtype, number);
  if (!fits) throw TypeError(fmt::format("{}: {} is not a value of {}", function, number, name(dtype)));
}

/// An operand of `function` that meets `x`: errors name that function, and not the ops it is composed of.
Variable operand_meeting(const Operand& operand, const Variable& x, std::string_view function) {
  if (operand.is_number()) {
    check_number(operand.number(), x.dtype(), function);
    return operand.like(x);
  }
  const Variable& v = operand.defined(function);
  if (v.rank() > 0 && x.rank() > 0)
    check_same_dtype({x.dtype(), x.shape()}, {v.dtype(), v.shape()}, function);
  (void)broadcast(x.shape(), v.shape(), function);
  return v;
}

/// Writes these numbers in the place of NaN and infinities, for floats and doubles.
void replace_special(const Tensor& x, double nan, double high, double low, Tensor& out) {
  visit(x.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_floating_point_v<T>) {
      const T* in = static_cast<const T*>(x.address());
      T* to = static_cast<T*>(out.address());
      constexpr T infinity = std::numeric_limits<T>::infinity();
      const T of_nan = static_cast<T>(nan), of_high = static_cast<T>(high), of_low = static_cast<T>(low);
      parallel_for(x.elements(), detail::grain, [=](int64_t begin, int64_t end) {
        vectorized([=]() __attribute__((always_inline)) {
          for (int64_t i = begin; i < end; ++i) {
            const T value = in[i], finite = value == infinity ? of_high : value == -infinity ? of_low : value;
            to[i] = value == value ? finite : of_nan;
          }
        });
      });
    }
  });
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
  return located(x.where(), [&] {
    const Variable& v = x.is_number() && !low.is_number() ? x.like(low.defined("clamp")) : x.defined("clamp");
    check_dtype<Numbers>({v.dtype(), v.shape()}, "clamp");
    return clamp_max(clamp_min(v, operand_meeting(low, v, "clamp")), operand_meeting(high, v, "clamp"));
  });
}
Variable saturate(const Operand& x, double low, double high) {
  const CallScope scope(x.where());
  return apply_binary<SaturateMax>(apply_binary<SaturateMin>(x, low), high);
}

Variable lerp(const Operand& a, const Operand& b, const Operand& weight) {
  const CallScope scope(a.where());
  const Variable& known = a.is_number() ? b.defined("lerp") : a.defined("lerp");
  const auto [from, to] = located(a.where(), [&] {
    return std::pair(operand_meeting(a, known, "lerp"), operand_meeting(b, known, "lerp"));
  });
  const Variable difference = to - from;
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
Variable isposinf(const Operand& x) { return apply_unary<IsPosInf>(x); }
Variable isneginf(const Operand& x) { return apply_unary<IsNegInf>(x); }
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
  located(x.where(), [&] {
    for (const double number : {nan, infinity.value_or(largest), negative_infinity.value_or(-largest)})
      check_number(number, v.dtype(), "nan_to_num");
  });
  const double high = infinity.value_or(largest), low = negative_infinity.value_or(-largest);
  const auto bounded = [&] { return where(isinf(v), where(greater(v, 0.0), high, full_like(v, low)), v); };
  if (!may_be_one_pass({&v})) return where(isnan(v), nan, bounded());
  const Variable number(full({}, nan, v.dtype()));
  const auto [is_nan, others] = [&] {
    const ValuesLater later;
    return std::pair(isnan(v), bounded());
  }();
  const auto compute = [&](Tensor& out) {
    replace_special(v.value().contiguous_copy(), nan, high, low, out);
  };
  return apply_by(compute, where_op(), {&is_nan, &number, &others}, x.where());
}

void add_rounding_ops(OpRegistry& ops) {
  ops.add<Ceil, Round, Trunc, FloorDivide, Fmod, Remainder, Heaviside, IsNan, IsInf, IsPosInf, IsNegInf,
          IsFinite, ClampMin, ClampMax, SaturateMin, SaturateMax>();
}

}  // namespace espalier
