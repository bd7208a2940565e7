// Ops that work along the last axis: for other axes views exchange it with the one that is meant.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/ops/functions/layout.h"

namespace espalier {

/// `axis` counted from the front. Throws ShapeError naming `op` if `x` has no such axis.
inline int64_t axis_of(const Variable& x, int64_t axis, std::string_view op,
                       const std::source_location& where) {
  return located(where, [&] {
    if (x.rank() == 0) throw ShapeError(fmt::format("{}: a scalar has no axis {}", op, axis));
    return static_cast<int64_t>(resolve_axis(axis, x.rank(), op));
  });
}

/// `x` with this axis, counted from the front, and the last one exchanged. A view; a second call undoes it.
inline Variable exchange_last_axis(const Variable& x, int64_t axis) {
  const auto rank = static_cast<int64_t>(x.rank());
  if (axis == rank - 1) return x;
  Dims order;
  for (int64_t i = 0; i < rank; ++i) order.push_back(i);
  std::swap(order[static_cast<size_t>(axis)], order[static_cast<size_t>(rank - 1)]);
  return transpose(x, Axes(order));
}

/// Throws ShapeError for a scalar.
inline void check_has_axis(const Spec& spec, std::string_view op) {
  if (spec.shape.rank() == 0) throw ShapeError(fmt::format("{}: a scalar has no axis", op));
}

/// The shape with another size of the last axis.
inline Shape with_last_size(const Shape& shape, int64_t size) {
  Shape result = shape;
  result.dims().back() = size;
  return result;
}

/// The number of rows along the last axis, also where these have no elements.
inline int64_t rows_along_last(const Shape& shape) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.rank(); ++i) rows *= shape.dims()[i];
  return rows;
}

}  // namespace espalier
