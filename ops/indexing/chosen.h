// Which elements of a tensor the indices of an op choose along one axis.
#pragma once
#include <string_view>

#include "espalier/core/tensor.h"

namespace espalier {

/// Two forms. *Slices*: the shape of the indices stands in place of the axis, as in gather. *Along*: each
/// chosen element has an index of its own, as in take_along_axis; indices have as many axes as the tensor, of
/// its sizes or 1 beside the axis.
struct Chosen {
  int64_t axis;
  bool along;

  /// The shape of what is chosen. Throws ShapeError or TypeError for indices that do not fit.
  Shape shape(const Spec& x, const Spec& indices, std::string_view op) const;

  /// The indices seen from what is chosen: for each of its elements the place of its index.
  Layout indices_for(const Layout& indices, const Shape& chosen) const {
    if (along) return broadcast_layout(indices, chosen);
    Layout seen;
    seen.shape = chosen;
    seen.offset = indices.offset;
    seen.strides = Dims(chosen.rank(), 0);
    // The rank of the tensor is that of `chosen` with one axis in place of those of the indices.
    const size_t rank = chosen.rank() - indices.shape.rank() + 1;
    const size_t a = resolve_axis(axis, rank, "indices");
    for (size_t i = 0; i < indices.shape.rank(); ++i) seen.strides[a + i] = indices.strides[i];
    return seen;
  }
};

/// A shape as [outer, size, inner] around one axis.
struct AxisBlocks {
  int64_t outer = 1, size, inner = 1;
  AxisBlocks(const Shape& shape, size_t axis) : size(shape.dims()[axis]) {
    for (size_t i = 0; i < shape.rank(); ++i) (i < axis ? outer : inner) *= i == axis ? 1 : shape.dims()[i];
  }
  int64_t lines() const { return outer * inner; }
};

}  // namespace espalier
