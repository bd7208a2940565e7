// The positions of an axis as numbers, in a tree whose sizes may differ from step to step.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// 0, 1, … along an axis of `like`, of which it reads the shape: [size], int64.
Variable positions_like(const Variable& like, int64_t axis);

}  // namespace espalier
