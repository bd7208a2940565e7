// Elementwise special functions.
#include "espalier/ops/functions/special.h"

#include <numbers>

#include "espalier/core/op_registry.h"
#include "espalier/core/scalar_special.h"
#include "espalier/core/values_later.h"
#include "espalier/ops/elementwise/compare.h"
#include "espalier/ops/elementwise/elementary_op.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/registered_ops.h"

namespace espalier {

namespace {

using Lgamma = ByInput<"lgamma", scalar::Lgamma, [](Var g, Var x) { return g * digamma(x); }>;
using Digamma = ByInput<"digamma", scalar::Digamma, [](Var g, Var x) { return g * polygamma(1, x); }>;
using Erfc = ByInput<"erfc", scalar::Erfc, [](Var g, Var x) {
  return g * (exp(negative(square(x))) * (-2 * std::numbers::inv_sqrtpi));
}>;
using Erfinv = ByOutput<"erfinv", scalar::Erfinv,
                        [](Var g, Var y) { return g * (exp(square(y)) * (0.5 / std::numbers::inv_sqrtpi)); }>;

/// The first operand is the order; no gradient passes to it.
struct Polygamma : BinaryOp<scalar::Polygamma, Reals> {
  std::string_view name() const override { return "polygamma"; }
  Gradients gradient(const GradientRule& rule) const override {
    const auto next = [&] { return apply_binary<Polygamma>(rule.input(0) + 1.0, rule.input(1)); };
    return {Variable(), rule.wants(1) ? rule.output_gradient() * next() : Variable()};
  }
};

struct XLogY : BinaryOp<scalar::XLogY, Reals> {
  std::string_view name() const override { return "xlogy"; }
  Gradients gradient(const GradientRule& rule) const override {
    const Variable& g = rule.output_gradient();
    const Variable x = rule.input(0), y = rule.input(1);
    Gradients result(2);
    if (rule.wants(0)) {
      const Variable flat = logical_and(equal(x, 0.0), less_equal(y, 0.0));
      result[0] = where(flat, 0.0, g * log(where(flat, 1.0, y)));
    }
    if (rule.wants(1)) result[1] = g * (x / y);
    return result;
  }
};

/// Near 0 the series, so that the derivatives are right at 0, and exact beside it: 1 − z²/3! + z⁴/5! − …
struct SincParts {
  Variable near, series, fraction;
};
SincParts parts_of_sinc(const Variable& x) {
  const Variable z = x * std::numbers::pi, near = less(abs(z), 0.5), squared = square(where(near, z, 0.0));
  Variable series = 1.0 - squared / 156.0;
  for (const double divisor : {110.0, 72.0, 42.0, 20.0, 6.0}) series = 1.0 - series * squared / divisor;
  const Variable far = where(near, 1.0, z);
  return {near, series, sin(far) / far};
}

/// For floats and doubles.
void run_sinc(const Tensor& x, Tensor& out) {
  visit(x.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_floating_point_v<T>) {
      const T* in = static_cast<const T*>(x.address());
      T* to = static_cast<T*>(out.address());
      parallel_for(x.elements(), detail::grain, [=](int64_t begin, int64_t end) {
        detail::unary_row<scalar::Sinc, T, T>(end - begin, to + begin, in + begin, 1);
      });
    }
  });
}

}  // namespace

Variable lgamma(const Operand& x) { return apply_unary<Lgamma>(x); }
Variable digamma(const Operand& x) { return apply_unary<Digamma>(x); }
Variable polygamma(int64_t n, const Operand& x) {
  if (n < 0) located(x.where(), [&] { throw Error(fmt::format("polygamma: the order {} is negative", n)); });
  return n == 0 ? digamma(x) : apply_binary<Polygamma>(Operand(n, x.where()), x);
}
Variable erfc(const Operand& x) { return apply_unary<Erfc>(x); }
Variable erfinv(const Operand& y) { return apply_unary<Erfinv>(y); }
Variable sinc(const Operand& x) {
  const CallScope scope(x.where());
  const Variable& v = x.defined("sinc");
  located(x.where(), [&] { check_dtype<Reals>({v.dtype(), v.shape()}, "sinc"); });
  if (!may_be_one_pass({&v})) {
    const SincParts parts = parts_of_sinc(v);
    return where(parts.near, parts.series, parts.fraction);
  }
  const SincParts parts = [&] {
    const ValuesLater later;
    return parts_of_sinc(v);
  }();
  const auto compute = [&](Tensor& out) { run_sinc(v.value().contiguous_copy(), out); };
  return apply_by(compute, where_op(), {&parts.near, &parts.series, &parts.fraction}, x.where());
}
Variable xlogy(const Operand& x, const Operand& y) { return apply_binary<XLogY>(x, y); }

void add_special_ops(OpRegistry& ops) { ops.add<Lgamma, Digamma, Polygamma, Erfc, Erfinv, XLogY>(); }

}  // namespace espalier
