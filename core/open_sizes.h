// What a tree over open axes must not contain.
#pragma once
#include <span>
#include <string_view>

#include "espalier/core/node.h"

namespace espalier {

/// Throws UnsupportedError naming `what`, the first of these nodes, and its line, that was written with a
/// number made of the nominal size of an open axis, if one of them is the source of a feed that has one: an
/// attribute, the shape of a leaf or of a constant, or a number. Batches of other sizes would need another
/// number.
void check_open_sizes(std::span<Node* const> tree, std::string_view what);

}  // namespace espalier
