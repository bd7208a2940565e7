// Elements chosen by a condition.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// `x` with `value`, which is broadcast, where the bool `mask` holds: where(mask, value, x).
Variable masked_fill(const Operand& x, const Operand& mask, const Operand& value);

/// `x` with the elements of `source`, in row-major order, in place of those where the bool `mask` holds,
/// which is broadcast. PyTorch's masked_scatter. Throws IndexError if `source` has fewer elements than
/// places.
Variable masked_scatter(const Operand& x, const Operand& mask, const Variable& source);

// How many elements there are depends on values, and so does the shape. So what follows works eagerly, and
// where these values are known, made of constants alone: a Tensor as a mask. Of others it throws
// UnsupportedError downstream of a feed, where shapes are written before there are values, and in plans.
// `where`, `masked_fill` and sums of x · cast(mask) work everywhere.
/// The elements of `x` where the bool `mask` holds, in row-major order: [count]. Both are broadcast;
/// downstream of a feed they must have one shape.
Variable masked_select(const Operand& x, const Operand& mask);
/// The indices of the elements that are not zero, in row-major order: [count, rank], int64.
Variable nonzero(const Operand& x);

}  // namespace espalier
