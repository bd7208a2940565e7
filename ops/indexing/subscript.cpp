// x[…]: positions, ranges, new axes, indices and masks, as slices and gathers.
#include "espalier/core/subscript.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/functions/arrange.h"
#include "espalier/ops/functions/indexing.h"
#include "espalier/ops/functions/layout.h"
#include "espalier/ops/functions/statistics.h"
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
  if (tensors > 1)
    throw UnsupportedError(
        "[]: more than one tensor of indices, which could be meant as pairs or as rows and columns; index "
        "one "
        "axis after the other, or see take_along_axis and pick");
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

Variable subscript(const Variable& x, const Entries& entries) {
  if (!x.defined()) throw Error("[]: the Variable is undefined");
  const size_t others = axes_of_ellipsis(x.shape(), entries);
  Variable result = x;
  int64_t axis = 0;
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
        if (is_mask(entry)) {
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
  const CallScope scope(where);
  return located(where, [&] { return subscript(*this, entries); });
}

}  // namespace espalier
