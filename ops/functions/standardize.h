// Elements with a mean of 0 and a variance of 1.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// (x − mean) / (σ + epsilon) with the mean and the standard deviation along the given axes, or of all
/// elements: axes {0, 2, 3} normalize each channel of [n, channels, height, width]. For reals; 16-bit ones
/// are computed in float32. ONNX's MeanVarianceNormalization. Error unless epsilon >= 0.
Variable mean_variance_normalization(const Operand& x, const Axes& axes = {0, 2, 3}, double epsilon = 1e-9);

}  // namespace espalier
