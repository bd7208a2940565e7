// Reshaping and concatenating tensors along the axis that has the rows of a batch.
#pragma once
#include <vector>

#include "espalier/core/tensor.h"

namespace espalier {

/// The same elements in the same order under another shape. The tensor is contiguous; nothing is copied.
Tensor with_shape(const Tensor& tensor, Shape shape);

/// A copy of the parts, one after the other along an axis. The result of no parts is empty; its other sizes
/// and its dtype are those of `like`.
Tensor join(const std::vector<Tensor>& parts, size_t axis, const Tensor& like);

}  // namespace espalier
