// The transpose of sliding_windows.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// Windows of an axis, whose elements are on the last axis of `x`, added up where they lie in `like`, of
/// which it reads the shape. Deterministic.
Variable add_windows_like(const Variable& x, const Variable& like, int64_t axis, int64_t step,
                          int64_t dilation);
/// The same, in an axis of `length`.
Variable add_windows(const Variable& x, int64_t length, int64_t axis, int64_t step, int64_t dilation);

}  // namespace espalier
