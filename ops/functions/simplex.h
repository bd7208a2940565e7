// Distributions along an axis that may have zeros.
#pragma once
#include <cstdint>

#include "espalier/core/variable.h"

namespace espalier {

/// The distribution that is nearest to `x` along an axis, as softmax a differentiable choice, but with zeros.
/// Throws ShapeError for a scalar. Martins and Astudillo, From softmax to sparsemax, 2016.
Variable sparsemax(const Operand& x, int64_t axis = -1);

struct GumbelSoftmaxOptions {
  double temperature = 1;  ///< above 0: the lower, the nearer are the results to 0 and 1
  /// 1 for the largest element and 0 for the others, with the gradient of the soft result.
  bool hard = false;
  int64_t axis = -1;
  bool noise = true;  ///< without it, G is 0
};
/// softmax((logits + G) / temperature) with standard Gumbel numbers G, which are drawn as those of rand_like:
/// a sample of the classes with the probabilities softmax(logits), through which a gradient passes. Throws
/// Error unless the temperature is above 0, ShapeError for a scalar. Jang et al., Categorical
/// reparameterization with Gumbel-softmax, 2016.
Variable gumbel_softmax(const Operand& logits, const GumbelSoftmaxOptions& options = {});

}  // namespace espalier
