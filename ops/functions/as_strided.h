// Elements at strides that the user names.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

/// Element [i, j, …] of the result is element offset + i · strides[0] + j · strides[1] + … of `x`, counted in
/// row-major order whatever the layout of `x` is; strides may be 0 or negative. MLX's as_strided. A copy, by
/// indices that take 8 bytes for each element of the result; the gradient adds up what was read more than
/// once. ShapeError unless there is a stride for each axis, IndexError for an element outside (in a plan,
/// also of a short last batch).
Variable as_strided(const Operand& x, const Shape& shape, const std::vector<int64_t>& strides,
                    int64_t offset = 0);

}  // namespace espalier
