// Operations that move elements: views, copies, joins.
#pragma once
#include <source_location>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

// Other layouts of the same elements; the result is a view where strides allow it, else a copy.
/// One size may be -1: it is inferred.
Variable reshape(const Operand& x, const Shape& shape);
/// Merges axis `first` and all axes after it into one.
Variable flatten(const Operand& x, int64_t first = 0);
/// Merges the axes `first` to `last` into one. ShapeError if `last` comes before `first`.
Variable flatten(const Operand& x, int64_t first, int64_t last);
/// Swaps the last two axes.
Variable transpose(const Operand& x);
/// Axis i of the result is axis `order[i]` of `x`.
Variable transpose(const Operand& x, const Axes& order);
/// Removes the given axes, of size 1, or all axes of size 1.
Variable squeeze(const Operand& x, const Axes& axes = {});
/// Inserts an axis of size 1, at position `axis` of the result.
Variable unsqueeze(const Operand& x, int64_t axis);
/// Repeats axes of size 1, and prepends axes.
Variable broadcast_to(const Operand& x, const Shape& shape);
/// The same to the shape that `like` has in each step; its elements are not read.
Variable expand_as(const Operand& x, const Operand& like);
/// Elements `begin` to `end` (excluded) of one axis. Negative positions count from the end.
Variable slice(const Operand& x, int64_t axis, int64_t begin, int64_t end);
Variable concat(const std::vector<Variable>& variables, int64_t axis = 0,
                std::source_location where = std::source_location::current());
/// Joins variables of one shape along a new axis.
Variable stack(const std::vector<Variable>& variables, int64_t axis = 0,
               std::source_location where = std::source_location::current());

}  // namespace espalier
