// Results of 16-bit reals that are computed in float32 and rounded once.
#pragma once
#include "espalier/core/variable.h"
#include "espalier/ops/functions/creation.h"

namespace espalier {

/// 16-bit values as float32.
inline Variable widened(const Variable& x) { return is_half(x.dtype()) ? cast(x, float32) : x; }
/// `x` in that dtype.
inline Variable rounded(const Variable& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

}  // namespace espalier
