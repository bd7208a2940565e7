// Distances within a set of vectors.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// The distances ‖xᵢ − xⱼ‖ of all pairs i < j of rows, x [n, d]: [n (n − 1) / 2], those of row 0 first. With
/// p and gradients as in cdist. For reals. ShapeError for another rank, Error unless p is above 0.
Variable pdist(const Operand& x, double p = 2);

}  // namespace espalier
