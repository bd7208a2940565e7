// The names by which values are given to a tree.
#pragma once
#include <vector>

#include "espalier/core/node.h"

namespace espalier {

/// Throws DataError if two placeholders of the tree have the same name.
void check_names(const std::vector<Node*>& tree);

}  // namespace espalier
