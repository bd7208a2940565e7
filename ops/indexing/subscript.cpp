// x[…]: positions, ranges, new axes, indices and masks, as slices and gathers.
#include "espalier/core/subscript.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/functions/creation.h"
#include "espalier/ops/functions/indexing.h"
#include "espalier/ops/functions/layout.h"
#include "espalier/ops/functions/statistics.h"
#include "espalier/ops/indexing/checked_indices.h"
#include "espalier/ops/indexing/masks.h"
#include "espalier/ops/views/axis_groups.h"

namespace espalier {

namespace {

using Entries = std::initializer_list<Index>;

bool is_mask(const Index& entry) {
  return entry.kind() == Index::Kind::tensor && entry.tensor().dtype() == DType::boolean;
}
/// How many axes of x an entry is for.
size_t axes_indexed(const Index& entry) {
  switch (entry.kind()) {
    case Index::Kind::ellipsis:
    case Index::Kind::new_axis: return 0;
    case Index::Kind::tensor: return is_mask(entry) ? entry.tensor().rank() : 1;
    default: return 1;
  }
}

/// Throws unless the tensors stand side by side, so that their axes go together.
void check_side_by_side(const Entries& entries) {
  const auto is_tensor = [](const Index& entry) { return entry.kind() == Index::Kind::tensor; };
  const auto* const first = std::ranges::find_if(entries, is_tensor);
  const auto* const behind = std::find_if_not(first, entries.end(), is_tensor);
  if (std::any_of(first, behind, is_mask) || std::any_of(behind, entries.end(), is_tensor))
    throw UnsupportedError(
        "[]: several tensors of indices are the coordinates of places, so they are integers and stand side "
        "by side; index one axis after the other, or see take_along_axis and pick");
}

/// Checks the number of entries, and returns how many axes an ellipsis stands for.
size_t axes_of_ellipsis(const Shape& shape, const Entries& entries) {
  size_t named = 0, ellipses = 0, tensors = 0;
  for (const Index& entry : entries) {
    if (entry.kind() == Index::Kind::tensor && !entry.tensor().defined())
      throw Error("[]: an index is an undefined Variable");
    named += axes_indexed(entry);
    ellipses += entry.kind() == Index::Kind::ellipsis;
    tensors += entry.kind() == Index::Kind::tensor;
  }
  if (ellipses > 1) throw IndexError("[]: more than one ellipsis");
  if (tensors > 1) check_side_by_side(entries);
  if (named > shape.rank())
    throw IndexError(fmt::format("[]: {} axes are indexed of the shape {}", named, shape.str()));
  return shape.rank() - named;
}

Variable at_position(const Variable& x, int64_t position, int64_t axis) {
  const int64_t size = x.shape()[axis];
  if (position < -size || position >= size)
    throw IndexError(
        fmt::format("[]: position {} is outside axis {} of shape {}", position, axis, x.shape().str()));
  return squeeze(slice(x, axis, position, position == -1 ? open_end : position + 1), axis);
}

Variable where_mask_holds(const Variable& x, const Variable& mask, int64_t axis) {
  const Shape &shape = x.shape(), &holds = mask.shape();
  const auto first = static_cast<size_t>(axis);
  if (!std::equal(holds.begin(), holds.end(), shape.begin() + first))
    throw ShapeError(fmt::format("x[mask]: a mask of shape {} for the shape {} from axis {} on", holds.str(),
                                 shape.str(), axis));
  // The mask's axes become one of as many positions as it has, also where x has others in another batch.
  std::vector<std::vector<AxisOf>> groups;
  for (int64_t i = 0; i < static_cast<int64_t>(shape.rank()); ++i)
    if (i == axis)
      groups.push_back({{AxisOf::number, holds.elements()}});
    else if (i < axis || i >= axis + static_cast<int64_t>(holds.rank()))
      groups.push_back({{0, i}});
  const Variable merged = holds.rank() == 1 && !x.node()->lazy ? x : reshape_by(x, {}, groups);
  return gather(merged, numbers_of_nonzero(mask, "x[mask]"), axis);
}

/// x at the places whose coordinates along the axes from `axis` on the tensors are, broadcast to one shape,
/// which stands in place of these axes.
Variable at_places(const Variable& x, std::vector<Variable> tensors, int64_t axis) {
  Shape shape;  // the check of them all
  for (Variable& tensor : tensors) {
    if (tensor.dtype() != int32 && tensor.dtype() != int64)
      throw TypeError(fmt::format("[]: indices are {}, not int32 or int64", name(tensor.dtype())));
    tensor = cast(tensor, int64);
    shape = broadcast(shape, tensor.shape(), "[]");
  }
  const Variable places = stack(broadcast_tensors(tensors), -1);
  const auto coordinates = static_cast<int64_t>(tensors.size()),
             axes = static_cast<int64_t>(places.rank()) - 1;
  const auto moved = [axis](const Variable& v, int64_t count, bool to_front) {
    Dims at, front;
    for (int64_t i = 0; i < count; ++i) at.push_back(axis + i), front.push_back(i);
    if (axis == 0 || count == 0) return v;
    return to_front ? movedim(v, Axes(at), Axes(front)) : movedim(v, Axes(front), Axes(at));
  };
  return moved(gather_nd_for("[]", moved(x, coordinates, true), places), axes, false);
}

Variable subscript(const Variable& x, const Entries& entries) {
  if (!x.defined()) throw Error("[]: the Variable is undefined");
  const size_t others = axes_of_ellipsis(x.shape(), entries);
  Variable result = x;
  int64_t axis = 0;
  std::vector<Variable> coordinates;  // of several tensors; the last one chooses
  const auto tensors = std::ranges::count(entries, Index::Kind::tensor, &Index::kind);
  for (const Index& entry : entries) {
    switch (entry.kind()) {
      case Index::Kind::position: result = at_position(result, entry.position(), axis); break;
      case Index::Kind::range:
        if (const auto& [begin, end, step] = entry.range(); begin != 0 || end != espalier::end || step != 1)
          result = slice(result, axis, begin, end, step);
        ++axis;
        break;
      case Index::Kind::ellipsis: axis += static_cast<int64_t>(others); break;
      case Index::Kind::new_axis: result = unsqueeze(result, axis++); break;
      case Index::Kind::tensor:
        if (tensors > 1) {
          coordinates.push_back(entry.tensor());
          if (std::ssize(coordinates) < tensors) break;
          const auto before = static_cast<int64_t>(result.rank());
          result = at_places(result, coordinates, axis);
          axis += static_cast<int64_t>(result.rank()) - before + tensors;
        } else if (is_mask(entry)) {
          result = where_mask_holds(result, entry.tensor(), axis++);
        } else {
          result = gather(result, entry.tensor(), axis);
          axis += static_cast<int64_t>(entry.tensor().rank());
        }
    }
  }
  return result;
}

}  // namespace

Index::Index(Variable (*function)(const Operand&, const Axes&, bool), Where where) : where_(where) {
  if (function != all) located(where, [] { throw Error("[]: of functions, only all is an index"); });
}

Variable Variable::operator[](const Index& entry) const { return (*this)[{entry}]; }
Variable Variable::operator[](std::initializer_list<Index> entries) const {
  const Where where = entries.size() ? entries.begin()->where() : Where();
  const CallScope scope(where, "[]");
  return located(where, [&] { return subscript(*this, entries); });
}

}  // namespace espalier
