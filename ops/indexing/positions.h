// The positions of an axis as numbers, in a tree whose sizes may differ from step to step.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// 0, 1, … along an axis of `like`, of which it reads the shape: [size], int64.
Variable positions_like(const Variable& like, int64_t axis);
/// The row-major numbers i·n + j of the pairs i < j in a matrix [n, n], where n is the size of the first axis
/// of `like`: [n (n − 1) / 2], int64, ascending.
Variable pair_positions_like(const Variable& like);

}  // namespace espalier
