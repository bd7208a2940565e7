// The op of a matrix product.
#pragma once
#include "espalier/core/op.h"

namespace espalier {

/// Its operands are seen transposed as the form says.
OpPtr matmul_op(MatmulForm form);

}  // namespace espalier
