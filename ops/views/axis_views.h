// Views that insert, merge and divide axes whatever the sizes of the others are in a step.
#pragma once
#include <cstddef>
#include <cstdint>

#include "espalier/ops/shape_like_ops.h"

namespace espalier {

/// Inserts an axis on which everything is repeated `count` times, at position `axis` of the result.
Variable repeat_on_axis(const Variable& x, int64_t count, int64_t axis);
/// Merges axes that follow each other: groups[i] of them become axis i of the result.
Variable merge_axes(const Variable& x, const Dims& groups);

/// `x`, whose sizes from axis `first` on become numbers of the tree: a tree in which one of them is open is
/// refused where it is frozen or evaluated (core/open_sizes.h).
Variable with_fixed_sizes(const Variable& x, size_t first);

}  // namespace espalier
