// Order: sorting, selection by rank, and search in sorted elements. A NaN counts as larger than all numbers;
// of equal elements the first comes first.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/core/variable.h"
#include "espalier/ops/functions/values_and_indices.h"

namespace espalier {

// Along one axis, for elements of any type. The gradient of values goes to the selected elements; indices
// have none. Scalars have no axis (ShapeError).
/// The elements in ascending or descending order. Stable.
ValuesAndIndices sort(const Operand& x, int64_t axis = -1, bool descending = false);
/// The positions that sort() returns.
Variable argsort(const Operand& x, int64_t axis = -1, bool descending = false);
/// The `k` largest elements in descending order, or the `k` smallest in ascending order: as the first `k` of
/// sort(). Throws IndexError unless 0 <= k <= the size of the axis.
ValuesAndIndices topk(const Operand& x, int64_t k, int64_t axis = -1, bool largest = true);
/// The k-th smallest element (1 is the smallest) and its first position. Without `keep_dims` the axis goes.
/// Throws IndexError unless 1 <= k <= the size of the axis.
ValuesAndIndices kthvalue(const Operand& x, int64_t k, int64_t axis = -1, bool keep_dims = false);
/// The median, for an even number of elements the lower of the two in the middle, and its first position; a
/// NaN if there is one. Numbers only. Throws ShapeError if the axis is empty.
ValuesAndIndices median(const Operand& x, int64_t axis, bool keep_dims = false);
/// The median of all elements.
Variable median(const Operand& x);
/// A quantile that lies between two elements, as NumPy and PyTorch name it.
enum class QuantileInterpolation : uint8_t {
  linear,    ///< on the straight line between them
  lower,     ///< the smaller one
  higher,    ///< the larger one
  midpoint,  ///< their mean
  nearest,   ///< the nearer one; halfway, that at an even position
};
/// The value below which a share `q` of the elements lies, from 0 (the smallest) to 1. A NaN if there is one.
/// Gradients go to the elements that it is made of. Reals only. Throws Error unless 0 <= q <= 1, ShapeError
/// if the axis is empty.
Variable quantile(const Operand& x, double q, int64_t axis, bool keep_dims = false,
                  QuantileInterpolation interpolation = QuantileInterpolation::linear);
/// Of several shares, in a new first axis: [shares, ...].
Variable quantile(const Operand& x, const std::vector<double>& q, int64_t axis, bool keep_dims = false,
                  QuantileInterpolation interpolation = QuantileInterpolation::linear);
/// Of all elements.
Variable quantile(const Operand& x, double q,
                  QuantileInterpolation interpolation = QuantileInterpolation::linear);
// The same of the elements that are not NaN; a NaN where there is none.
Variable nanquantile(const Operand& x, double q, int64_t axis, bool keep_dims = false,
                     QuantileInterpolation interpolation = QuantileInterpolation::linear);
Variable nanquantile(const Operand& x, const std::vector<double>& q, int64_t axis, bool keep_dims = false,
                     QuantileInterpolation interpolation = QuantileInterpolation::linear);
Variable nanquantile(const Operand& x, double q,
                     QuantileInterpolation interpolation = QuantileInterpolation::linear);

/// The positions (int64, of the shape of `values`) at which to insert values so that `sorted`, ascending
/// along its last axis, stays so: before equal elements, or with `right` behind them. `sorted` is [n], or
/// [..., n] for values [..., m]. Throws TypeError unless both have one dtype, ShapeError.
Variable searchsorted(const Operand& sorted, const Operand& values, bool right = false);

}  // namespace espalier
