// Similarities and distances. 16-bit operands are computed in float32, and the result is rounded once.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/functions/compare.h"
#include "espalier/ops/functions/creation.h"
#include "espalier/ops/functions/distance.h"
#include "espalier/ops/functions/layout.h"
#include "espalier/ops/functions/linear_algebra.h"
#include "espalier/ops/functions/math.h"
#include "espalier/ops/functions/reduction.h"
#include "espalier/ops/pointwise.h"

namespace espalier {

namespace {

/// More rows than this are multiplied.
constexpr int64_t few_rows = 25;

/// Runs `f(a, b)` in float32 at least.
template <class F>
Variable of_real_pair(const Operand& a, const Operand& b, std::string_view op, F&& f) {
  const CallScope scope(a.where(), op);
  return located(a.where(), [&] {
    const Variable &x = a.defined(op), &y = b.defined(op);
    const Spec first{x.dtype(), x.shape()}, second{y.dtype(), y.shape()};
    check_same_dtype(first, second, op);
    check_dtype<Reals>(first, op);
    if (!is_half(x.dtype())) return f(x, y);
    return cast(f(cast(x, float32), cast(y, float32)), x.dtype());
  });
}

void check_norm(double p, std::string_view op) {
  if (!(p > 0)) throw Error(fmt::format("{}: p is {}; a norm has p above 0", op, p));
}

/// x^q for x >= 0, with 0 and a gradient of 0 where x is 0.
Variable root_of_distance(const Variable& x, double q) {
  const Variable positive = greater(x, zeros_like(x));
  const Variable safe = where(positive, x, ones_like(x));
  return where(positive, q == 0.5 ? sqrt(safe) : power(safe, q), zeros_like(x));
}

/// (Σ|x|ᵖ)^(1/p) along the last axis.
Variable norm_of_differences(const Variable& x, double p, bool keep_dims) {
  if (std::isinf(p)) return max(abs(x), -1, keep_dims);
  if (p == 1) return sum(abs(x), -1, keep_dims);
  if (p == 2) return root_of_distance(sum(square(x), -1, keep_dims), 0.5);
  return root_of_distance(sum(root_of_distance(abs(x), p), -1, keep_dims), 1 / p);
}

/// ‖a‖² + ‖b‖² − 2·a·b of all pairs of rows, seen from the mean of b: rows that lie close together far from
/// the origin would lose their digits.
Variable squares_by_product(const Variable& x, const Variable& y) {
  const Variable rows = maximum(cast(axis_size(y, -2), y.dtype()), 1.0);
  const Variable center = stop_gradient(sum(y, -2, true) / rows);
  const Variable a = x - center, b = y - center;
  const Variable of_a = sum(square(a), -1, true), of_b = transpose(sum(square(b), -1, true));
  const Variable squares = of_a + of_b - matmul(a, transpose(b)) * 2.0;
  return maximum(squares, 0.0);
}

}  // namespace

Variable cosine_similarity(const Operand& a, const Operand& b, int64_t axis, double epsilon) {
  return of_real_pair(a, b, "cosine_similarity", [&](const Variable& x, const Variable& y) {
    if (!(epsilon > 0))
      throw Error(fmt::format("cosine_similarity: epsilon is {}; it must be above 0", epsilon));
    const Shape shape = broadcast(x.shape(), y.shape(), "cosine_similarity");
    // An axis counted from the front is that of the broadcast shape.
    const auto at = static_cast<int64_t>(resolve_axis(axis, shape.rank(), "cosine_similarity")) -
                    static_cast<int64_t>(shape.rank());
    for (const Variable* v : {&x, &y})
      if (v->rank() < static_cast<size_t>(-at) || v->shape()[at] != shape[at])
        throw ShapeError(fmt::format("cosine_similarity: {} and {} must both have axis {}, with one size",
                                     x.shape().str(), y.shape().str(), axis));
    const double least = std::max(epsilon * epsilon, x.dtype() == float64 ? 0.0 : 1.2e-38);
    const Variable of_x = sqrt(maximum(sum(square(x), at), least)),
                   of_y = sqrt(maximum(sum(square(y), at), least));
    return sum(x * y, at) / (of_x * of_y);
  });
}

Variable pairwise_distance(const Operand& a, const Operand& b, const DistanceOptions& options) {
  return of_real_pair(a, b, "pairwise_distance", [&](const Variable& x, const Variable& y) {
    check_norm(options.p, "pairwise_distance");
    const Shape shape = broadcast(x.shape(), y.shape(), "pairwise_distance");
    if (shape.rank() == 0)
      throw ShapeError("pairwise_distance: takes vectors along the last axis, not scalars");
    return norm_of_differences(x - y + options.epsilon, options.p, options.keep_dims);
  });
}

Variable cdist(const Operand& a, const Operand& b, double p) {
  return of_real_pair(a, b, "cdist", [&](const Variable& x, const Variable& y) {
    check_norm(p, "cdist");
    if (x.rank() < 2 || y.rank() < 2 || x.shape()[-1] != y.shape()[-1])
      throw ShapeError(
          fmt::format("cdist: takes rows of one size, [..., n, d] and [..., m, d], not {} and {}",
                      x.shape().str(), y.shape().str()));
    if (p == 2 && std::max(x.shape()[-2], y.shape()[-2]) > few_rows)
      return root_of_distance(squares_by_product(x, y), 0.5);
    return norm_of_differences(unsqueeze(x, -2) - unsqueeze(y, -3), p, false);
  });
}

}  // namespace espalier
