// Elements chosen along one axis, and writing at indices: the reverse of `gather` and of `take_along_axis`.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

// Indices are int32 or int64 (TypeError); negative ones count from the end, and one outside is an IndexError
// (on a GPU at the next synchronization). `values` are broadcast and may be a number. Where one place is
// named more than once, the last value stays; the others have a gradient of zero.

/// x[…, indices[…, i, …], …]: for each position of `indices` the element of `x` at that place, but for
/// `axis`, where the index says which. Both have as many axes; sizes beside `axis` are broadcast. NumPy's
/// take_along_axis, PyTorch's gather. ShapeError.
Variable take_along_axis(const Operand& x, const Operand& indices, int64_t axis);
/// `x` with `values` at the places that take_along_axis reads. `indices` have as many axes as `x`, and beside
/// `axis` its sizes or 1; `values` are broadcast to the shape that take_along_axis has. NumPy's
/// put_along_axis, PyTorch's scatter. ShapeError, TypeError.
Variable put_along_axis(const Operand& x, const Operand& indices, const Operand& values, int64_t axis);
/// The same, with `values` added to what is there; all count where a place is named more than once. PyTorch's
/// scatter_add. Numbers, no bool.
Variable add_along_axis(const Operand& x, const Operand& indices, const Operand& values, int64_t axis);
/// The same, with the largest, or smallest, of what is there and of all values for a place; NaN if one is.
/// The gradient is divided among all that are equal to it. PyTorch's scatter_reduce with amax and amin.
/// Numbers, no bool.
Variable max_along_axis(const Operand& x, const Operand& indices, const Operand& values, int64_t axis);
Variable min_along_axis(const Operand& x, const Operand& indices, const Operand& values, int64_t axis);

/// `x` with `values` in place of the slices that gather(x, indices, axis) reads, to whose shape they are
/// broadcast: `indices` have any shape, which stands in place of the axis. PyTorch's index_copy. ShapeError,
/// also for values in the shape of a matrix of indices, which put_along_axis takes; TypeError.
Variable scatter(const Operand& x, const Operand& indices, const Operand& values, int64_t axis = 0);
/// The same, with `values` added to what is there; all count where a slice is named more than once. Numbers,
/// no bool.
Variable scatter_add(const Operand& x, const Operand& indices, const Operand& values, int64_t axis = 0);
/// The same, with the largest, or smallest, of what is there and of all values for a place, as in
/// max_along_axis. PyTorch's index_reduce with amax and amin.
Variable scatter_max(const Operand& x, const Operand& indices, const Operand& values, int64_t axis = 0);
Variable scatter_min(const Operand& x, const Operand& indices, const Operand& values, int64_t axis = 0);
/// scatter_add by PyTorch's name.
Variable index_add(const Operand& x, const Operand& indices, const Operand& values, int64_t axis = 0);

}  // namespace espalier
