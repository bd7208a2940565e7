// Copies between tensors of one shape with any strides.
#pragma once
#include "espalier/core/tensor.h"

namespace espalier {

/// `to` = `from`, of one shape and dtype, in memory that does not overlap.
void copy_strided(const Tensor& from, Tensor& to);

}  // namespace espalier
