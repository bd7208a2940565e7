// Vectors and neighbourhoods divided by their sizes.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

struct NormalizeOptions {
  double p = 2;  ///< of the norm, above 0
  int64_t axis = 1;
  double epsilon = 1e-12;  ///< the least that is divided by
};
/// x / max(‖x‖, ε), with the norm along one axis. For reals. PyTorch's normalize. Throws ShapeError without
/// such an axis.
Variable normalize(const Operand& x, const NormalizeOptions& options = {});

struct LocalResponseOptions {
  int64_t size = 5;  ///< of the neighbourhood, in channels
  double alpha = 1e-4, beta = 0.75, k = 1;
};
/// x / (k + α/size · Σ x²)^β, summed over the `size` channels around each, axis 1 of [n, channels, ...];
/// there are zeros beyond the first and the last. Krizhevsky et al., ImageNet classification with deep
/// convolutional neural networks, 2012, as PyTorch's local_response_norm. Throws ShapeError for fewer than
/// two axes, Error for a size below 1.
Variable local_response_norm(const Operand& x, const LocalResponseOptions& options = {});

}  // namespace espalier
