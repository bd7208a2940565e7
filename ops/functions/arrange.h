// Elements in another order, repeated, padded, cut and joined.
#pragma once
#include <cstdint>
#include <limits>
#include <source_location>
#include <utility>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

/// As the end of a slice: as far as the axis goes.
inline constexpr int64_t open_end = std::numeric_limits<int64_t>::max();

/// Elements `begin`, `begin` + `step`, … before `end` of one axis; a negative step goes backwards, to behind
/// `end`. Negative positions count from the end; `open_end` is the end, or the start for a negative step. A
/// view for positive steps. IndexError; Error for a step of 0.
Variable slice(const Operand& x, int64_t axis, int64_t begin, int64_t end, int64_t step);
/// `x` with `values`, which are broadcast, in place of slice(x, axis, begin, end, step). PyTorch's
/// slice_scatter. Throws the errors of slice, ShapeError and TypeError.
Variable slice_scatter(const Operand& x, const Operand& values, int64_t axis, int64_t begin = 0,
                       int64_t end = open_end, int64_t step = 1);
/// The elements of the given axes, or of all, in reverse order.
Variable flip(const Operand& x, const Axes& axes = {});
/// Moves elements by `shift` places along an axis; what leaves it at one end comes back at the other.
Variable roll(const Operand& x, int64_t shift, int64_t axis);

enum class PadMode : uint8_t {
  constant,   ///< with a number
  reflect,    ///< mirrored at the outermost element, which is not repeated
  replicate,  ///< with the outermost element
  circular,   ///< with the elements of the other end
};
struct PadOptions {
  PadMode mode = PadMode::constant;
  double value = 0;  ///< of PadMode::constant, which the dtype must have (TypeError)
};
/// By how many elements an axis grows at its start and at its end. Negative numbers cut elements off.
struct Padding {
  int64_t before = 0, after = 0;
};
/// Pads the last axes: the last Padding is of the last axis (so fewer Paddings than axes leave the first ones
/// alone). ShapeError for more paddings than axes, for more to reflect than size − 1, for a circle longer
/// than the axis, and for more cut off than there is.
Variable pad(const Operand& x, const std::vector<Padding>& paddings, const PadOptions& options = {});

/// `x` side by side with itself, that many times along each axis. Fewer numbers than axes are for the last
/// ones, more prepend axes. NumPy's tile. ShapeError for a negative number.
Variable tile(const Operand& x, const std::vector<int64_t>& repeats);
/// Each slice of an axis `repeats` times. ShapeError for a negative number.
Variable repeat_interleave(const Operand& x, int64_t repeats, int64_t axis);
/// Slice i of an axis counts[i] times: `counts` are integers, [size] or a single one. Their values decide the
/// shape, so they must not come from a feed (UnsupportedError). ShapeError, TypeError, Error for a negative
/// count.
Variable repeat_interleave(const Operand& x, const Operand& counts, int64_t axis);

/// Parts of `size` slices along an axis; the last may be smaller. Views. Error unless size > 0.
std::vector<Variable> split(const Operand& x, int64_t size, int64_t axis = 0);
/// Parts of these sizes, which add up to that of the axis (ShapeError). Views.
std::vector<Variable> split(const Operand& x, const std::vector<int64_t>& sizes, int64_t axis = 0);
/// `parts` parts, or fewer: all of one size, rounded up, but the last. Views. Error unless parts > 0. The
/// first axis below a feed is divided so for each batch, if it can be (else ShapeError), and an open one if
/// the parts are 2, 4, 8, 16, 32 or 64 (else UnsupportedError).
std::vector<Variable> chunk(const Operand& x, int64_t parts, int64_t axis = 0);
/// The slices of an axis, without it. Views. For an open axis, this and split throw UnsupportedError.
std::vector<Variable> unbind(const Operand& x, int64_t axis = 0);

/// All repeated to the shape that they have together. Views. ShapeError.
std::vector<Variable> broadcast_tensors(const std::vector<Variable>& variables,
                                        std::source_location where = std::source_location::current());
enum class MeshIndexing : uint8_t {
  ij,  ///< axis i of the result is that of variable i
  xy,  ///< the first two axes are swapped, as in plots
};
/// Coordinates of a grid, from one vector (or scalar) for each of its axes. Views. ShapeError.
std::vector<Variable> meshgrid(const std::vector<Variable>& variables,
                               MeshIndexing indexing = MeshIndexing::ij,
                               std::source_location where = std::source_location::current());

// Views: axes in another order, merged and divided.
/// Axis i of the result is axis `order[i]` of `x`: transpose(x, order). ShapeError.
Variable permute(const Operand& x, const Axes& order);
/// Axis from[i] of `x` becomes axis to[i] of the result; the others keep their order. ShapeError.
Variable movedim(const Operand& x, const Axes& from, const Axes& to);
Variable swapaxes(const Operand& x, int64_t first, int64_t second);
/// Divides an axis into several; one size may be -1. ShapeError unless the sizes multiply to that of the
/// axis.
Variable unflatten(const Operand& x, int64_t axis, const Shape& sizes);
/// The same into axes of the sizes that these axes of `like` have in each step; its elements are not read.
/// What flatten(like, 0, 1) merged, unflatten_like(x, 0, like) divides again. ShapeError unless these sizes
/// multiply to that of the axis.
Variable unflatten_like(const Operand& x, int64_t axis, const Operand& like, const Axes& axes = {0, 1});
/// `x` with at least that many axes: [] becomes [1], [1, 1] and [1, 1, 1]; [n] becomes [1, n] and [1, n, 1];
/// [m, n] becomes [m, n, 1].
Variable atleast_1d(const Operand& x);
Variable atleast_2d(const Operand& x);
Variable atleast_3d(const Operand& x);

}  // namespace espalier
