// Random numbers of activations.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

/// Uniform numbers in [0, 1) in the shape and dtype of `x`, as rand_like; 1/2 in plans of inference.
Variable rand_in_training_like(const Variable& x);

}  // namespace espalier
