#include "espalier/core/tree.h"

#include <algorithm>
#include <utility>

namespace espalier {

void sort_by_age(std::vector<Node*>& nodes) {
  // The ids beside the nodes: comparisons that go to the nodes miss the caches.
  std::vector<std::pair<uint64_t, Node*>> by_id;
  by_id.reserve(nodes.size());
  for (Node* node : nodes) by_id.emplace_back(node->id, node);
  std::sort(by_id.begin(), by_id.end());
  std::ranges::transform(by_id, nodes.begin(), &std::pair<uint64_t, Node*>::second);
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
