// The ops of pooling. What they pool are the last axes.
#pragma once
#include "espalier/core/variable.h"
#include "espalier/ops/pooling/pool_windows.h"

namespace espalier {

/// Where in its plane, counted in row-major order, the largest element of each window lies: int64. The first
/// of equal ones; a NaN is larger than all numbers. It has no gradient.
Variable pool_argmax(const Variable& x, const PoolForm& form, const std::source_location& where);
/// Those elements.
Variable pool_max(const Variable& x, const PoolForm& form, const std::source_location& where);
/// The elements of x at `indices`, those that pool_argmax finds in it.
Variable pool_take(const Variable& x, const Variable& indices, const PoolForm& form,
                   const std::source_location& where);
/// The transpose of pool_take, in the shape of `like`: each element is the sum of those windows that found
/// it.
Variable pool_add_like(const Variable& g, const Variable& indices, const Variable& like, const PoolForm& form,
                       const std::source_location& where);
/// The sums of the windows.
Variable pool_sum(const Variable& x, const PoolForm& form, const std::source_location& where);
/// The number of elements of each window that lie in the axes, or with the padding, as a real of the dtype of
/// `like`: in the shape of the pooled axes of pool_sum(like), and a size of 1 for each axis before.
Variable pool_count(const Variable& like, const PoolForm& form, bool with_padding,
                    const std::source_location& where);

}  // namespace espalier
