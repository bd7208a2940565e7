// Activations, elementwise and along an axis, and normalization.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

// Elementwise activations, for reals.
Variable tanh(const Operand& x);
Variable sigmoid(const Operand& x);
Variable relu(const Operand& x);
/// x·Φ(x), with the standard normal distribution Φ. Hendrycks and Gimpel, Gaussian error linear units, 2016.
Variable gelu(const Operand& x);

// Along one axis; large inputs do not overflow.
Variable softmax(const Operand& x, int64_t axis = -1);
Variable log_softmax(const Operand& x, int64_t axis = -1);

/// (x − mean) / √(variance + ε) along the last axis, times `gain` plus `bias`, which are broadcast. Ba et
/// al., Layer normalization, 2016.
Variable layer_norm(const Operand& x, const Operand& gain, const Operand& bias, double epsilon = 1e-5);

}  // namespace espalier
