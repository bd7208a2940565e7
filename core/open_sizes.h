// What a tree over open axes must not contain.
#pragma once
#include <span>
#include <string_view>

#include "espalier/core/node.h"

namespace espalier {

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
