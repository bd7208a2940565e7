// The matmul op.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

/// A matrix product with operands transposed as `form` says.
OpPtr matmul_op(MatmulForm form);

}  // namespace espalier
