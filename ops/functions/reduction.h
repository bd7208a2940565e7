// Reductions along axes.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

// Reductions along the given axes, or all. The gradient of max and min is divided among equal elements.
Variable sum(const Operand& x, const Axes& axes = {}, bool keep_dims = false);
Variable mean(const Operand& x, const Axes& axes = {}, bool keep_dims = false);
Variable max(const Operand& x, const Axes& axes = {}, bool keep_dims = false);
Variable min(const Operand& x, const Axes& axes = {}, bool keep_dims = false);
/// The position (int64) of the first largest element along an axis.
Variable argmax(const Operand& x, int64_t axis = -1);

}  // namespace espalier
