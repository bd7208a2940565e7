// Ops of arithmetic, for code that runs kernels without a tree.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

/// Adds two inputs elementwise, with broadcasting.
OpPtr add_op();
OpPtr multiply_op();
OpPtr subtract_op();

}  // namespace espalier
