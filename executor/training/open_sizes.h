// What a tree over open axes must not contain.
#pragma once
#include <vector>

#include "espalier/core/node.h"
#include "espalier/executor/training/tree_feeds.h"

namespace espalier {

/// Throws UnsupportedError naming the first of these nodes, and its line, that was written with a number made
/// of the nominal size of an open axis, if a feed has one: an attribute, the shape of a leaf or of a
/// constant, or a number. Batches of other sizes would need another number.
void check_open_sizes(const std::vector<Node*>& tree, const TreeFeeds& feeds);

/// Throws DataError if two placeholders of the tree have the same name.
void check_names(const std::vector<Node*>& tree);

}  // namespace espalier
