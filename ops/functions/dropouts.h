// Dropouts that keep the mean and the variance of self-normalizing networks.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

// Klambauer et al., Self-normalizing neural networks, 2017. What is dropped becomes −1.7581, where selu ends;
// then everything is scaled and shifted, so that a mean of 0 and a variance of 1 stay. For reals. The
// identity in plans of inference, as dropout. Error unless 0 <= rate < 1.
/// Drops elements with probability `rate`.
Variable alpha_dropout(const Operand& x, double rate);
/// Drops whole channels of x [n, channels, ...], for each example its own. ShapeError for a rank below 2.
Variable feature_alpha_dropout(const Operand& x, double rate);

}  // namespace espalier
