// Batches of matrices that are broadcast, for kernels.
#pragma once
#include <cstdint>

#include "espalier/core/error.h"
#include "espalier/core/philox.h"
#include "espalier/core/tensor.h"
#include "espalier/ops/linalg/matrix_layouts.h"

namespace espalier::cu {

/// Which matrix of a batch is meant by a number of the batch that it is broadcast to. Both shapes have two
/// further axes.
struct MatrixSteps {
  static constexpr int most_axes = 8;
  int axes = 0;
  int64_t size[most_axes] = {}, step[most_axes] = {};  ///< the innermost axis first

  MatrixSteps(const Shape& own, const Shape& all) {
    const Layout layout = broadcast_layout(Layout(batch_of_matrices(own)), batch_of_matrices(all));
    const size_t rank = layout.shape.rank();
    if (rank > most_axes)
      throw UnsupportedError("a GPU takes matrices with at most 8 leading axes, not " + all.str());
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

}  // namespace espalier::cu
