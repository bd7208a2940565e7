#include "espalier/core/tree.h"

#include <algorithm>

namespace espalier {

void sort_by_age(std::vector<Node*>& nodes) {
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->id < b->id; });
}

std::vector<Node*> nodes_below(TreeWalk walk) {
  std::vector<Node*> nodes;
  while (Node* node = walk.next()) {
    nodes.push_back(node);
    walk.enter_inputs(*node);
  }
  sort_by_age(nodes);
  return nodes;
}

}  // namespace espalier
