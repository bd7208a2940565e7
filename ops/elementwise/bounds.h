// Bounds of activations.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// `x` within [low, high]: as clamp, but at the bounds themselves no gradient passes.
Variable saturate(const Operand& x, double low, double high);

}  // namespace espalier
