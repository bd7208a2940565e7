// Pooling by norms: (Σ|x|ᵖ)^(1/p) of each window of the last axes of [batch, channels, sizes…].
#pragma once

#include "espalier/core/variable.h"
#include "espalier/ops/functions/windows.h"

namespace espalier {

struct LpPoolOptions {
  PerAxis kernel;  ///< sizes of the windows
  double p = 2;    ///< of the norm: finite and above 0
  OptionalPerAxis stride = {};
  PerAxis padding = 0;  ///< zeros at both ends; at most half of a window
  PerAxis dilation = 1;
  bool ceil = false;  ///< a last window that begins within the axis may reach beyond the padding
};
/// The p-norm of each window: PyTorch's lp_pool1d, 2d and 3d for numbers that are not negative or even p, and
/// ONNX's LpPool. Of a window that reaches beyond the padding, the mean of what it has stands for the rest,
/// as in PyTorch. Where a window is all zeros, its gradient is 0. Throws as max_pool; Error for another p,
/// TypeError for integers.
Variable lp_pool(const Operand& x, const LpPoolOptions& options);

}  // namespace espalier
