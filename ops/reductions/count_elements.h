// The count that any(), all() and count_nonzero() are made of.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// How many elements (int64) along these axes, or of all, are zero, or are not.
Variable count_elements(const Operand& x, const Axes& axes, bool keep_dims, bool zeros);

}  // namespace espalier
