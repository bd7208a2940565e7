// Products of matrices.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// [..., m, k] × [..., k, n] = [..., m, n], with leading axes broadcast; transposed operands are not copied.
Variable matmul(const Operand& a, const Operand& b);

}  // namespace espalier
