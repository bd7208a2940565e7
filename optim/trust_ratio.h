// Norms of whole parameters, for the rules of large batches.
#pragma once
#include "espalier/ops/ops.h"

namespace espalier::optim {

/// √Σx², a scalar.
inline Variable norm_of(const Variable& x) { return sqrt(sum(square(x))); }

/// above / below, or 1 where one of them is 0.
inline Variable trust_ratio(const Variable& above, const Variable& below) {
  return where(logical_and(greater(above, 0.0), greater(below, 0.0)), above / below, 1.0);
}

}  // namespace espalier::optim
