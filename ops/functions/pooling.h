// Pooling: windows of the last one, two or three axes of [batch, channels, sizes…] become one element each.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/core/variable.h"
#include "espalier/ops/functions/windows.h"

namespace espalier {

struct MaxPoolOptions {
  PerAxis kernel;               ///< sizes of the windows
  OptionalPerAxis stride = {};  ///< by default the kernel: windows side by side
  PerAxis padding = 0;          ///< at both ends; at most half of a window
  PerAxis dilation = 1;
  bool ceil = false;  ///< a last window that begins within the axis may reach beyond the padding
};
/// The largest element of each window, as PyTorch's max_pool1d, 2d and 3d: axes of
/// ⌊(size + 2 · padding − dilation · (kernel − 1) − 1) / stride⌋ + 1. A NaN is larger than all numbers;
/// padding is never chosen. The gradient goes to the first of equal elements. Throws ShapeError for another
/// rank and where no window fits, Error for other numbers.
Variable max_pool(const Operand& x, const MaxPoolOptions& options);
struct PooledWithIndices {
  Variable values, indices;
};
/// The same, and where in its plane, counted in row-major order, each of them lies (int64).
PooledWithIndices max_pool_with_indices(const Operand& x, const MaxPoolOptions& options);

struct AveragePoolOptions {
  PerAxis kernel;
  OptionalPerAxis stride = {};
  PerAxis padding = 0;
  bool ceil = false;
  bool count_padding = true;  ///< whether means are taken over the zeros of the padding, too
};
/// The mean of each window, as PyTorch's avg_pool1d, 2d and 3d. Throws as max_pool; TypeError for integers.
Variable avg_pool(const Operand& x, const AveragePoolOptions& options);

/// What max_pool and avg_pool, and their layers, have in common, for code that takes either.
struct PoolOptions {
  PerAxis kernel;
  OptionalPerAxis stride = {};
  PerAxis padding = 0;

  operator MaxPoolOptions() const { return {.kernel = kernel, .stride = stride, .padding = padding}; }
  operator AveragePoolOptions() const { return {.kernel = kernel, .stride = stride, .padding = padding}; }
};

/// The largest element of each part: each axis is divided into that many parts as evenly as whole elements
/// can, from ⌊i · size / parts⌋ to ⌈(i + 1) · size / parts⌉. PyTorch's adaptive_max_pool.
Variable adaptive_max_pool(const Operand& x, const PerAxis& parts);
/// The same, and where in its plane, counted in row-major order, each of them lies (int64).
PooledWithIndices adaptive_max_pool_with_indices(const Operand& x, const PerAxis& parts);
/// The mean of each part. PyTorch's adaptive_avg_pool.
Variable adaptive_avg_pool(const Operand& x, const PerAxis& parts);

}  // namespace espalier
