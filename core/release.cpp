// What a tree may forget while a plan computes in its stead.
#include "espalier/core/eval.h"
#include "espalier/core/tree.h"

namespace espalier {

int64_t release_values(Node& root) {
  std::vector<Node*> nodes{&root};  // all below it, each once
  std::vector<int32_t> uses{0};     // of their values, by rules of the tree itself
  NodeMap positions;
  positions.insert(&root, 0);
  for (size_t n = 0; n < nodes.size(); ++n)
    for (size_t i = 0; i < nodes[n]->inputs.size(); ++i) {
      Node* input = nodes[n]->inputs[i].node();
      uint32_t at = positions.find(input);
      if (at == NodeMap::none) {
        at = static_cast<uint32_t>(nodes.size());
        positions.insert(input, at);
        nodes.push_back(input);
        uses.push_back(0);
      }
      uses[at] += nodes[n]->uses_input(i);
    }
  int64_t bytes = 0;
  for (size_t n = 0; n < nodes.size(); ++n) {
    Node& node = *nodes[n];
    // Others may ask: handles, rules of another tree, and gradients that were asked for are among the users.
    if (node.is_leaf() || node.lazy || node.has_handles() || node.value_uses() != uses[n]) continue;
    for (const Output& output : node.outputs)
      if (output.value.defined() && output.value.storage().unique())
        bytes += static_cast<int64_t>(output.value.bytes());
    node.clear_value();
  }
  return bytes;
}

}  // namespace espalier
