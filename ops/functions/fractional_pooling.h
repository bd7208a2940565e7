// Pooling by windows at random distances. Graham, Fractional max-pooling, 2014.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/ops/functions/pooling.h"

namespace espalier {

struct FractionalPoolOptions {
  PerAxis kernel;                  ///< sizes of the windows
  OptionalPerAxis parts = {};      ///< how many windows an axis has, or
  std::vector<double> ratio = {};  ///< these per element: between 0 and 1, one for all axes or for each
};
/// The largest element of each window of the last one, two or three axes of [batch, channels, sizes…]. Along
/// an axis with n windows, window i begins at ⌊(i + s) · a⌋ − ⌊s · a⌋, where a = (size − kernel) / (n − 1),
/// and the last one at size − kernel. s is of each plane and axis: samples [batch, channels, axes] in [0, 1),
/// by default drawn anew. PyTorch's fractional_max_pool2d and 3d, whose samples of two axes are in reverse
/// order: here, sample i is of axis i. Equal elements and NaN as in max_pool. ShapeError where kernel + n − 1
/// exceeds an axis, and for other samples; Error unless there is one of `parts` and `ratio`, and for other
/// numbers; TypeError for integers.
Variable fractional_max_pool(const Operand& x, const FractionalPoolOptions& options,
                             const Variable& samples = {});
/// The same, and where in its plane, counted in row-major order, each of them lies (int64).
PooledWithIndices fractional_max_pool_with_indices(const Operand& x, const FractionalPoolOptions& options,
                                                   const Variable& samples = {});

}  // namespace espalier
