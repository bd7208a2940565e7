#include "espalier/ops/functions/lp_pooling.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/functions/global_pooling.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pooling/forms.h"
#include "espalier/ops/pooling/pool.h"
#include "espalier/ops/widened.h"

namespace espalier {

namespace {

void check_order(double p, std::string_view function) {
  if (!(p > 0) || !std::isfinite(p))
    throw Error(fmt::format("{}: p is {}; it is finite and above 0", function, p));
}

/// f(x), but 0 where x is 0, with a derivative of 0 there.
template <class F>
Variable unless_zero(const Variable& x, F&& f) {
  const Variable is_zero = equal(x, zeros_like(x));
  return where(is_zero, zeros_like(x), f(where(is_zero, ones_like(x), x)));
}
Variable powers_of(const Variable& x, double p) {
  if (p == 1) return abs(x);
  if (p == 2) return square(x);
  if (p > 2) return power(abs(x), p);
  return unless_zero(abs(x), [p](const Variable& y) { return power(y, p); });
}
Variable root_of(const Variable& x, double p) {
  if (p == 1) return x;
  return unless_zero(x, [p](const Variable& y) { return p == 2 ? sqrt(y) : power(y, 1 / p); });
}

/// The axes behind batch and channels.
Axes axes_of_planes(const Variable& x, std::string_view function) {
  if (x.rank() < 3)
    throw ShapeError(fmt::format("{}: takes [batch, channels, sizes…], not {}", function, x.shape().str()));
  std::vector<int64_t> axes;
  for (size_t axis = 2; axis < x.rank(); ++axis) {
    if (x.shape().dims()[axis] == 0)
      throw ShapeError(fmt::format("{}: axis {} of {} is empty", function, axis, x.shape().str()));
    axes.push_back(static_cast<int64_t>(axis));
  }
  return Axes(axes);
}

template <class F>
Variable of_planes(const Operand& x, std::string_view function, F&& f) {
  const CallScope scope(x.where(), function);
  return located(x.where(), [&] {
    const Variable& v = x.defined(function);
    return f(v, axes_of_planes(v, function));
  });
}

}  // namespace

Variable lp_pool(const Operand& x, const LpPoolOptions& o) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    constexpr std::string_view function = "lp_pool";
    const Variable& given = x.defined(function);
    check_pooled_reals(given, function);
    check_order(o.p, function);
    const PoolForm form = sliding_form(given, {o.kernel, o.stride, o.padding, o.dilation, o.ceil}, function);
    Variable sums = pool_sum(powers_of(widened(given), o.p), form, x.where());
    if (o.ceil) {
      double whole = 1;
      for (const int64_t size : form.kernel) whole *= static_cast<double>(size);
      sums = sums * (whole / pool_count(sums.dtype() == given.dtype() ? given : widened(given), form, true,
                                        x.where()));
    }
    return rounded(root_of(sums, o.p), given.dtype());
  });
}

Variable global_max_pool(const Operand& x) {
  return of_planes(x, "global_max_pool", [](const Variable& v, const Axes& axes) {
    check_pooled_numbers(v, "global_max_pool");
    return max(v, axes, true);
  });
}
Variable global_avg_pool(const Operand& x) {
  return of_planes(x, "global_avg_pool", [](const Variable& v, const Axes& axes) {
    check_pooled_reals(v, "global_avg_pool");
    return mean(v, axes, true);
  });
}
Variable global_lp_pool(const Operand& x, double p) {
  return of_planes(x, "global_lp_pool", [p](const Variable& v, const Axes& axes) {
    check_pooled_reals(v, "global_lp_pool");
    check_order(p, "global_lp_pool");
    return norm(v, axes, {.p = p, .keep_dims = true});
  });
}

}  // namespace espalier
