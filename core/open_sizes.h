// Which axes of a tree are open, and which numbers it must not contain.
#pragma once
#include <source_location>
#include <span>
#include <string_view>

#include "espalier/core/node.h"

namespace espalier {

struct OpenAxesOf {
  uint64_t axes;  ///< a bit for each
  std::source_location where;
};

// Which axes of a tree are open is known by a second inference of all shapes, where open axes have another
// size: sizes that differ are made of theirs.

/// Sets these shapes of a source's output, whose axes are open.
void set_open_axes(Node& source, std::span<const size_t> axes);
/// The axes of `leaf`, which stands for `x`, are open as those of `x`; without the first if it is a row.
void copy_open_axes(const Variable& x, Node& leaf, bool row = false);
/// Infers the other shapes of a new node, whose inputs have these specs.
void follow_open_axes(Node& node, const InputSpecs& specs);
/// Whether the size of an axis is that of an open one, or made of it. ShapeError if there is no such axis.
bool is_open_axis(const Variable& x, int64_t axis);
bool is_open_axis(const Node& node, uint32_t output, size_t axis);
/// Whether any axis from `first` on is open.
bool has_open_axes(const Variable& x, size_t first = 0);
/// The shape that Variable::shape() gives outside of the library: reading the size of an open axis throws.
const Shape& shape_for_users(const Node& node, uint32_t output);

/// Does nothing unless one of these nodes is the source of a feed with an open axis. Throws UnsupportedError
/// if a node contains a number that was made of the nominal size of such an axis: in an attribute, in the
/// shape of a leaf or of a constant, or as its value. Batches of other sizes would need another number. The
/// message names `what`, the first such node and its line.
void check_open_sizes(std::span<Node* const> tree, std::string_view what);

/// Whether a size is that of an open axis, one near it (the end of a slice), a multiple, or what is left of
/// it when it is halved up to five times.
bool is_made_of_nominal_size(int64_t size);

/// Whether sizes of the tree that is being written may stand for open ones: limits on products of them are
/// for kernels to check. True if texts show open axes, and one of the sizes is near a multiple of an open
/// one, or near what strides leave of it.
bool may_be_open(std::span<const int64_t> sizes);

}  // namespace espalier
