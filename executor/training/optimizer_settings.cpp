#include "espalier/executor/training/optimizer_settings.h"

#include "espalier/core/node.h"
#include "espalier/core/tree.h"

namespace espalier {

std::vector<Variable> optimizer_settings(const Setup& setup) {
  std::vector<Variable> results = setup.tree.outputs, roots = setup.tree.updates;
  results.push_back(setup.root);
  roots.insert(roots.end(), results.begin(), results.end());
  std::set<const Node*> read_by_updates, others = setup.written;
  for (const Variable& result : results) others.insert(result.node());
  for (const Node* node : nodes_below(TreeWalk(roots)))
    for (const Edge& input : node->inputs)
      (node->tag == Tag::update ? read_by_updates : others).insert(input.node());
  std::vector<Variable> settings;
  for (const Variable& leaf : setup.leaves)
    if (!is_trainable(leaf.node()->op()) && leaf.rank() == 0 && read_by_updates.contains(leaf.node()) &&
        !others.contains(leaf.node()))
      settings.push_back(leaf);
  return settings;
}

}  // namespace espalier
