// Clipping of gradients, before any rule sees them.
#pragma once
#include <utility>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier::optim {

using ParameterGradients = std::vector<std::pair<Variable, Variable>>;

/// Every element between −limit and limit.
void clip_values(ParameterGradients& gradients, double limit);

/// All gradients multiplied by min(1, limit / (norm + 1e-6)), with the norm over all elements of all of them
/// (Pascanu et al. 2013, in PyTorch's form). The norm is one scalar which all share.
void clip_norm(ParameterGradients& gradients, double limit);

}  // namespace espalier::optim
