// The reverse of max pooling: elements at the places that max_pool_with_indices found.
#pragma once

#include "espalier/core/variable.h"
#include "espalier/ops/functions/windows.h"

namespace espalier {

struct MaxUnpoolOptions {
  PerAxis kernel;               ///< those of the pooling
  OptionalPerAxis stride = {};  ///< by default the kernel
  PerAxis padding = 0;
  OptionalPerAxis size = {};  ///< of the result, by default (n − 1) · stride − 2 · padding + kernel
};
/// Zeros [batch, channels, sizes…] with the elements of `x` at `indices`, row-major numbers of places in the
/// plane, int32 or int64 in the shape of x: PyTorch's max_unpool1d, 2d and 3d. Where a place is named more
/// than once, the last element stays, and the others have a gradient of 0. ShapeError for another rank or
/// shape, for a size without elements, and for one that differs from the default by a stride or more;
/// IndexError for a place outside of the plane; Error and TypeError for other numbers.
Variable max_unpool(const Operand& x, const Operand& indices, const MaxUnpoolOptions& options);

}  // namespace espalier
