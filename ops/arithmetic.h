// Ops of arithmetic, for those who run kernels without a tree.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

/// Of two inputs, element by element, broadcast.
OpPtr add_op();
OpPtr multiply_op();

}  // namespace espalier
