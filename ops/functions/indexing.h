// Elements and slices chosen by integers.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// Slices of `x` along `axis` at `indices` (int32 or int64, of any shape). Throws IndexError.
Variable gather(const Operand& x, const Operand& indices, int64_t axis = 0);
/// x[…, indices[…]]: selects one element of each row along the last axis; `indices` has the shape of x
/// without that axis.
Variable pick(const Operand& x, const Operand& indices);
/// [..., classes] with 1 at the index and 0 elsewhere. Throws IndexError.
Variable one_hot(const Operand& indices, int64_t classes, DType dtype = float32);

}  // namespace espalier
