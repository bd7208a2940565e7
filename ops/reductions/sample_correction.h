// What makes a variance of a sample that of its population.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// A scalar, n / (n − 1) (Bessel's correction), where n is the number of elements of `x` divided by that of
/// `variance`; 1 unless n > 1. It reads shapes alone.
Variable sample_correction(const Variable& x, const Variable& variance);
/// Whether an op computes it: of a part of a batch it stands for that of the whole, as a mean does.
bool is_sample_correction(const Op& op);

}  // namespace espalier
