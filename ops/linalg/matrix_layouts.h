// Shapes and layouts of matrices along the last two axes, without fmt, which nvcc cannot compile.
#pragma once
#include <initializer_list>
#include <utility>

#include "espalier/core/tensor.h"

namespace espalier {

/// The leading axes of matrices.
inline Shape batch_of_matrices(const Shape& shape) { return Shape(Dims(shape.begin(), shape.end() - 2)); }
/// Those axes, followed by others.
inline Shape batch_with(const Shape& batch, std::initializer_list<int64_t> axes) {
  Dims dims = batch.dims();
  for (const int64_t axis : axes) dims.push_back(axis);
  return Shape(std::move(dims));
}

/// a with its last two axes swapped, as it lies.
inline Tensor transposed_layout(const Tensor& a) {
  Layout layout = a.layout();
  const size_t rank = layout.shape.rank();
  std::swap(layout.shape.dims()[rank - 1], layout.shape.dims()[rank - 2]);
  std::swap(layout.strides[rank - 1], layout.strides[rank - 2]);
  return Tensor(a.storage(), std::move(layout), a.dtype());
}
/// a repeated to a shape, as it lies.
inline Tensor broadcast_layout_of(const Tensor& a, const Shape& shape) {
  return Tensor(a.storage(), broadcast_layout(a.layout(), shape), a.dtype());
}
/// The diagonals of contiguous square matrices, as they lie.
inline Tensor diagonals_of(const Tensor& a) {
  const int64_t n = a.shape()[-1];
  Layout layout(batch_with(batch_of_matrices(a.shape()), {n}));
  for (int64_t& stride : layout.strides) stride *= n;
  layout.strides.back() = n + 1;
  layout.offset = a.layout().offset;
  return Tensor(a.storage(), std::move(layout), a.dtype());
}

}  // namespace espalier
