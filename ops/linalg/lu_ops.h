// Determinants from LU factors.
#pragma once
#include <cstdint>

#include "espalier/ops/linalg/linalg_ops.h"

namespace espalier {

enum class DeterminantForm : uint8_t { whole, sign, log_abs };
/// [...]; no gradient passes through signs.
Variable lu_determinant(const LuFactors& factors, DeterminantForm form);

}  // namespace espalier
