// Batches of matrix products on a GPU: how many launches they take, and which operands to copy so that it is
// one.
#pragma once
#include "espalier/core/small_vector.h"
#include "espalier/ops/matmul/matmul_call.h"

namespace espalier {

/// An axis of a batch, and how far apart its matrices lie, in elements.
struct BatchAxis {
  int64_t size, a, b, c;
};
/// The axes of a batch, as few as possible, the longest last: a launch takes that one.
SmallVector<BatchAxis, 4> batch_axes(const GemmBatch& x);

/// Which operands to copy into order, so that the axes of the batch become fewer: few large launches instead
/// of many small ones. A copy counts as a launch.
struct BatchCopies {
  bool a = false, b = false;
};
BatchCopies batch_copies(DType dtype, const Layout& a, const Layout& b, const Shape& out, MatmulForm form);

}  // namespace espalier
