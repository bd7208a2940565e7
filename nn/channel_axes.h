// What normalizations of [n, channels, ...] have in common. For writers of layers.
#pragma once
#include "espalier/core/dtype.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

/// The axes `first` to `rank` − 1.
inline Dims axes_from(size_t first, size_t rank) {
  Dims axes;
  for (size_t axis = first; axis < rank; ++axis) axes.push_back(static_cast<int64_t>(axis));
  return axes;
}

/// A vector [channels] that is broadcast along axis 1 of `x`.
inline Variable along_channels(const Variable& vector, const Variable& x) {
  Dims shape(x.rank() - 1, 1);
  shape[0] = vector.shape()[0];
  return reshape(vector, Shape(shape));
}

}  // namespace espalier::nn
