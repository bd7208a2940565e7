// Gradient clipping, applied before update rules.
#pragma once
#include <utility>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier::optim {

using ParameterGradients = std::vector<std::pair<Variable, Variable>>;

/// Clamps every element to [−limit, limit].
void clip_values(ParameterGradients& gradients, double limit);

/// Multiplies all gradients by min(1, limit / (norm + 1e-6)), with the norm over the elements of all
/// gradients (Pascanu et al. 2013, in PyTorch's form).
void clip_norm(ParameterGradients& gradients, double limit);

}  // namespace espalier::optim
