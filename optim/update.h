// What an optimizer trains in a tree, for evaluators.
#pragma once
#include "espalier/optim/clip.h"
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

/// Those of the gradients of a tree's parameters that the optimizer makes updates of. Throws Error, naming
/// `user`, that says why if there are none.
ParameterGradients trained_gradients(const Variable& root, ParameterGradients gradients,
                                     const Optimizer& optimizer, std::string_view user);

}  // namespace espalier::optim
