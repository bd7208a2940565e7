#include "espalier/ops/functions/sequence_axes.h"

#include <fmt/format.h>

#include <limits>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/functions/scatter.h"
#include "espalier/ops/indexing/checked_indices.h"
#include "espalier/ops/indexing/positions.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/shape_like_ops.h"

namespace espalier {

namespace {

/// A vector along one of `rank` axes, with sizes of 1 beside it.
Variable along_axis(const Variable& x, size_t axis, size_t rank) {
  Dims others;
  for (size_t i = 0; i < rank; ++i)
    if (i != axis) others.push_back(static_cast<int64_t>(i));
  return unsqueeze_axes(x, others);
}

}  // namespace

Variable reverse_sequence(const Operand& x, const Operand& lengths, int64_t time_axis, int64_t batch_axis) {
  const CallScope scope(x.where());
  return located(x.where(), [&] {
    constexpr std::string_view function = "reverse_sequence";
    const Variable &from = x.defined(function), &given = lengths.defined(function);
    const size_t rank = from.rank(), time = resolve_axis(time_axis, rank, function),
                 batch = resolve_axis(batch_axis, rank, function);
    if (time == batch)
      throw ShapeError(fmt::format("{}: axis {} is both of time and of the batch", function, time));
    if (given.dtype() != int32 && given.dtype() != int64)
      throw TypeError(fmt::format("{}: lengths are {}, not int32 or int64", function, name(given.dtype())));
    if (given.rank() != 1 || given.shape()[0] != from.shape().dims()[batch])
      throw ShapeError(fmt::format("{}: lengths of shape {} for axis {} of {}", function, given.shape().str(),
                                   batch, from.shape().str()));
    const Variable place = along_axis(positions_like(from, static_cast<int64_t>(time)), time, rank);
    const Variable length = along_axis(cast(given, int64), batch, rank);
    const Variable reversed = where(less(place, length), length - place - int64_t{1}, place);
    // A negative length gets an index that is outside, too, as one that is too long has.
    const Variable index = where(less(length, int64_t{0}), std::numeric_limits<int64_t>::max(), reversed);
    const auto axis = static_cast<int64_t>(time);
    return take_along_axis(from, checked_indices(index, from, axis, true, function), axis);
  });
}

}  // namespace espalier
