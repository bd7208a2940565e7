// Results of 16-bit reals that are computed in float32 and rounded once.
#pragma once
#include "espalier/core/variable.h"
#include "espalier/ops/functions/creation.h"

namespace espalier {

/// In which type kernels of the CPU compute with such elements.
inline DType widened(DType dtype) { return is_half(dtype) ? DType::float32 : dtype; }
/// 16-bit values as float32.
inline Variable widened(const Variable& x) { return is_half(x.dtype()) ? cast(x, float32) : x; }
/// `x` in that dtype.
inline Variable rounded(const Variable& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

}  // namespace espalier
