#include "espalier/ops/functions/nd_indexing.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/open_sizes.h"
#include "espalier/ops/functions/scatter.h"
#include "espalier/ops/indexing/checked_indices.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/pointwise.h"
#include "espalier/ops/shape_like_ops.h"
#include "espalier/ops/views/axis_views.h"

namespace espalier {

namespace {

/// `x` with the axes that are indexed merged into the first, and the row-major numbers of the places there.
struct MergedPlaces {
  Variable x, numbers;

  MergedPlaces(const Variable& from, const Variable& indices, std::string_view function) {
    if (indices.dtype() != int32 && indices.dtype() != int64)
      throw TypeError(fmt::format("{}: indices are {}, not int32 or int64", function, name(indices.dtype())));
    const Shape& shape = from.shape();
    const int64_t k = indices.rank() == 0 ? 0 : indices.shape()[-1];
    if (k < 1 || static_cast<size_t>(k) > shape.rank())
      throw ShapeError(fmt::format("{}: indices of shape {}, [..., k], name {} axes of {}", function,
                                   indices.shape().str(), k, shape.str()));
    Dims groups{k};
    for (size_t axis = static_cast<size_t>(k); axis < shape.rank(); ++axis) groups.push_back(1);
    x = k == 1 ? from : merge_axes(from, groups);
    const Variable wide = cast(indices, int64);
    for (int64_t axis = 0; axis < k; ++axis) {
      const Variable index = squeeze(slice(wide, -1, axis, axis + 1), -1);
      const Variable places = checked_indices(index, from, axis, true, function);
      is_open_axis(from, axis) ? add(places, axis, cast(axis_size(from, axis), int64))
                               : add(places, axis, shape[axis]);
    }
  }

 private:
  /// The first axis may be that of a batch, so its size is not read: a negative number of the merged axis
  /// counts from the end, too.
  template <class Size>
  void add(const Variable& index, int64_t axis, const Size& size) {
    if (axis == 0) {
      numbers = index;
      return;
    }
    const Variable from_start = where(less(index, int64_t{0}), index + size, index);
    numbers = numbers * size + from_start;
  }
};

/// Throws ShapeError unless values can be repeated to what the places choose.
void check_broadcast(const Shape& values, const MergedPlaces& places, std::string_view function) {
  Shape chosen = places.numbers.shape();
  for (size_t axis = 1; axis < places.x.rank(); ++axis)
    chosen.dims().push_back(places.x.shape().dims()[axis]);
  bool fits = values.rank() <= chosen.rank();
  for (size_t i = 1; fits && i <= values.rank(); ++i) {
    const int64_t size = values.dims()[values.rank() - i];
    fits = size == 1 || size == chosen.dims()[chosen.rank() - i];
  }
  if (!fits)
    throw ShapeError(fmt::format("{}: values of shape {} cannot be repeated to {}, which the indices choose",
                                 function, values.str(), chosen.str()));
}

template <class F>
Variable scattered_nd(const Operand& x, const Operand& indices, const Operand& values,
                      std::string_view function, F&& f) {
  const CallScope scope(x.where(), function);
  return located(x.where(), [&] {
    const Variable& from = x.defined(function);
    const Variable given = values.like(from);
    if (given.dtype() != from.dtype())
      throw TypeError(fmt::format("{}: values of {} (shape {}) for an x of {} (shape {}); cast() one of them",
                                  function, name(given.dtype()), given.shape().str(), name(from.dtype()),
                                  from.shape().str()));
    const MergedPlaces places(from, indices.defined(function), function);
    check_broadcast(given.shape(), places, function);
    return reshape_like(f(places.x, places.numbers, given), from);
  });
}

}  // namespace

Variable gather_nd(const Operand& x, const Operand& indices) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    return gather_nd_for("gather_nd", x.defined("gather_nd"), indices.defined("gather_nd"));
  });
}
Variable gather_nd_for(std::string_view function, const Variable& x, const Variable& indices) {
  const MergedPlaces places(x, indices, function);
  return gather(places.x, places.numbers);
}
Variable scatter_nd(const Operand& x, const Operand& indices, const Operand& values) {
  return scattered_nd(
      x, indices, values, "scatter_nd",
      [](const Variable& to, const Variable& at, const Variable& v) { return scatter(to, at, v); });
}
Variable scatter_nd_add(const Operand& x, const Operand& indices, const Operand& values) {
  const Variable& to = x.defined("scatter_nd_add");
  located(x.where(), [&] { check_dtype<Numbers>({to.dtype(), to.shape()}, "scatter_nd_add"); });
  return scattered_nd(
      x, indices, values, "scatter_nd_add",
      [](const Variable& to, const Variable& at, const Variable& v) { return scatter_add(to, at, v); });
}

}  // namespace espalier
