// Quantiles, made of sorting.
#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

void check_quantile(std::string_view op, const Variable& x, size_t axis, std::span<const double> q) {
  check_dtype<Reals>({x.dtype(), x.shape()}, op);
  if (x.shape().dims()[axis] == 0)
    throw ShapeError(fmt::format("{}: the axis is empty (shape {})", op, x.shape().str()));
  if (q.empty()) throw Error(fmt::format("{}: there are no shares", op));
  for (const double share : q)
    if (!(share >= 0 && share <= 1))
      throw Error(fmt::format("{}: the share is {}; it must be from 0 to 1", op, share));
}

/// The elements of a row in ascending order, and which of them count.
struct Ranks {
  Variable sorted;  // NaNs come last
  Variable last;    // the position of the last one that counts, of float64; that axis has size 1
  size_t axis;
};

Variable element_at(const Ranks& ranks, const Variable& position) {
  return take_along_axis(ranks.sorted, cast(position, DType::int64), static_cast<int64_t>(ranks.axis));
}

Variable quantile_of(const Ranks& ranks, double q, QuantileInterpolation interpolation) {
  using enum QuantileInterpolation;
  const Variable position = ranks.last * q, below = floor(position);
  if (interpolation == lower) return element_at(ranks, below);
  if (interpolation == higher) return element_at(ranks, ceil(position));
  if (interpolation == nearest) return element_at(ranks, round(position));
  const Variable a = element_at(ranks, below), b = element_at(ranks, ceil(position));
  return lerp(a, b, interpolation == midpoint ? 0.5 * ones_like(a) : cast(position - below, a.dtype()));
}

/// Which elements, and of which axis.
struct Rows {
  int64_t axis;
  bool keep_dims = false, listed = false, skips_nan = false;
};

Variable quantiles(std::string_view op, const Operand& x, std::span<const double> q, const Rows& rows,
                   QuantileInterpolation interpolation) {
  const Variable& given = x.defined(op);
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    const size_t along = resolve_axis(rows.axis, given.rank(), op);
    check_quantile(op, given, along, q);
    const auto at = static_cast<int64_t>(along);
    const Variable v = is_half(given.dtype()) ? cast(given, DType::float32) : given;
    Ranks ranks{sort(v, at).values, {}, along};
    const Variable is_number = equal(ranks.sorted, ranks.sorted);
    const Variable counted =
        sum(cast(rows.skips_nan ? is_number : ones_like(is_number), DType::float64), at, true);
    ranks.last = maximum(counted - 1.0, 0.0);
    std::vector<Variable> found;
    for (const double share : q) {
      Variable value = quantile_of(ranks, share, interpolation);
      if (!rows.skips_nan) {
        const Variable largest = slice(ranks.sorted, at, -1, open_end);
        value = where(isnan(largest), largest, value);
      }
      if (!rows.keep_dims) value = squeeze(value, at);
      found.push_back(cast(value, given.dtype()));
    }
    return rows.listed ? stack(found) : found.front();
  });
}

Operand flat(const Operand& x, std::string_view op) {
  const CallScope scope(x.where());
  return {reshape(x.defined(op), {-1}), x.where()};
}

}  // namespace

Variable quantile(const Operand& x, double q, int64_t axis, bool keep_dims,
                  QuantileInterpolation interpolation) {
  return quantiles("quantile", x, {&q, 1}, {axis, keep_dims}, interpolation);
}
Variable quantile(const Operand& x, const std::vector<double>& q, int64_t axis, bool keep_dims,
                  QuantileInterpolation interpolation) {
  return quantiles("quantile", x, q, {axis, keep_dims, true}, interpolation);
}
Variable quantile(const Operand& x, double q, QuantileInterpolation interpolation) {
  return quantiles("quantile", flat(x, "quantile"), {&q, 1}, {0}, interpolation);
}
Variable nanquantile(const Operand& x, double q, int64_t axis, bool keep_dims,
                     QuantileInterpolation interpolation) {
  return quantiles("nanquantile", x, {&q, 1}, {axis, keep_dims, false, true}, interpolation);
}
Variable nanquantile(const Operand& x, const std::vector<double>& q, int64_t axis, bool keep_dims,
                     QuantileInterpolation interpolation) {
  return quantiles("nanquantile", x, q, {axis, keep_dims, true, true}, interpolation);
}
Variable nanquantile(const Operand& x, double q, QuantileInterpolation interpolation) {
  return quantiles("nanquantile", flat(x, "nanquantile"), {&q, 1}, {0, false, false, true}, interpolation);
}

}  // namespace espalier
