// Operations for gradient rules. They read the shape of `like` and not its elements, so that one tree works
// for batches of any size and no value is kept for its shape.
#pragma once
#include <string_view>
#include <vector>

#include "espalier/core/autograd.h"

namespace espalier {

/// Inserts axes of size 1, at positions `axes` of the result. A view.
Variable unsqueeze_axes(const Operand& x, const Dims& axes);
/// The elements of `x` in the shape of `like`. A view.
Variable reshape_like(const Variable& x, const Variable& like);
/// [..., n] as a matrix [rows, n]. A view.
Variable fold_rows(const Variable& x);
/// The reverse: x [rows, n] with the leading axes of `like`, as [..., n]. Throws ShapeError unless these have
/// as many rows.
Variable unfold_like(const Variable& x, const Variable& like);
/// A scalar: the number of elements of `a` divided by that of `b`.
Variable count_ratio(const Variable& a, const Variable& b);
/// Zeros in the shape of `like`, with `x` at `begin` of `axis`.
Variable pad_like(const Variable& x, const Variable& like, int64_t axis, int64_t begin);
/// The op of `slice`; the same one for the same settings, as long as a thread uses few others.
OpPtr slice_op(int64_t axis, int64_t begin, int64_t end);
/// A slice of `x` from `begin` of `axis` on, of the size of `like`. A view.
Variable slice_like(const Variable& x, const Variable& like, int64_t axis, int64_t begin);
/// The slice of `x` that corresponds to `parts[part]` in concat(parts, axis).
Variable concat_part(const Variable& x, const std::vector<Variable>& parts, size_t part, int64_t axis);
// IndexErrors of the next three name `function`, which the user called.

/// Zeros in the shape of `like`, with the slices of `x` added along `axis` at `indices`. Negative ones count
/// from the end, or are refused.
Variable scatter_add_like(const Variable& x, const Variable& indices, const Variable& like, int64_t axis,
                          std::string_view function, bool from_end = true);
/// Zeros in the shape of `like`, with `x` added along `axis` at `indices`, which have the shape of `x` or
/// sizes of 1 beside the axis: the transpose of take_along_axis.
Variable add_along_axis_like(const Variable& x, const Variable& indices, const Variable& like, int64_t axis,
                             std::string_view function);
/// Zeros in the shape of `like`, with x[…] at position indices[…] of the last axis.
Variable put_like(const Variable& x, const Variable& indices, const Variable& like,
                  std::string_view function);
/// g where y > 0, and 0 elsewhere.
Variable relu_gradient(const Variable& g, const Variable& y);
/// g times the slope of gelu at x.
Variable gelu_gradient(const Variable& g, const Variable& x);

}  // namespace espalier
