// Batches of matrices that are broadcast, for kernels; and other layouts of tensors, without fmt, which nvcc
// cannot compile.
#pragma once
#include <algorithm>
#include <cstdint>
#include <utility>

#include "espalier/core/error.h"
#include "espalier/core/philox.h"
#include "espalier/core/tensor.h"

namespace espalier::cu {

/// Which matrix of a batch is meant by a number of the batch that it is broadcast to. Both shapes have two
/// further axes.
struct MatrixSteps {
  static constexpr int most_axes = 8;
  int axes = 0;
  int64_t size[most_axes] = {}, step[most_axes] = {};  ///< the innermost axis first

  MatrixSteps(const Shape& own, const Shape& all) {
    const Layout layout = broadcast_layout(Layout(Shape(Dims(own.begin(), own.end() - 2))),
                                           Shape(Dims(all.begin(), all.end() - 2)));
    const size_t rank = layout.shape.rank();
    if (rank > most_axes) throw UnsupportedError("a GPU takes matrices with at most 8 leading axes");
    axes = static_cast<int>(rank);
    for (size_t i = 0; i < rank; ++i) {
      size[i] = layout.shape.dims()[rank - 1 - i];
      step[i] = layout.strides[rank - 1 - i];
    }
  }
  ESPALIER_HD int64_t of(int64_t number) const {
    int64_t at = 0;
    for (int i = 0; i < axes; ++i) {
      at += number % size[i] * step[i];
      number /= size[i];
    }
    return at;
  }
};

/// The tensor repeated to a shape, as it lies.
inline Tensor repeated_to(const Tensor& x, const Shape& shape) {
  return Tensor(x.storage(), broadcast_layout(x.layout(), shape), x.dtype());
}
/// The last two axes swapped, as they lie.
inline Tensor swapped(const Tensor& x) {
  Layout layout = x.layout();
  const size_t rank = layout.shape.rank();
  std::swap(layout.shape.dims()[rank - 1], layout.shape.dims()[rank - 2]);
  std::swap(layout.strides[rank - 1], layout.strides[rank - 2]);
  return Tensor(x.storage(), std::move(layout), x.dtype());
}
/// The leading axes of matrices, followed by others.
inline Shape with_leading_axes(const Shape& matrices, std::initializer_list<int64_t> axes) {
  Dims dims(matrices.begin(), matrices.end() - 2);
  for (const int64_t axis : axes) dims.push_back(axis);
  return Shape(std::move(dims));
}

}  // namespace espalier::cu
