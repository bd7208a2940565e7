// print_tree: what a Variable is made of, a line a node.
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>

#include "espalier/core/eval.h"

namespace espalier {

namespace {

void collect(Node* root, NodeMap& seen, std::vector<const Node*>& nodes) {
  std::vector<Node*> todo{root};
  while (!todo.empty()) {
    Node* node = todo.back();
    todo.pop_back();
    if (seen.find(node) != NodeMap::none) continue;
    seen.insert(node, 0);
    nodes.push_back(node);
    for (const Edge& input : node->inputs) todo.push_back(input.node());
  }
}

}  // namespace

void Variable::print_tree(std::ostream& out) const {
  if (!node_) {
    out << "undefined\n";
    return;
  }
  NodeMap seen;
  std::vector<const Node*> nodes;
  collect(node(), seen, nodes);
  if (const Record* record = node()->record.get()) {
    record->gradients.for_each(
        [&](Node*, uint32_t, const Edge& gradient) { collect(gradient.node(), seen, nodes); });
    for (const Record::Update& update : record->updates)
      for (const Edge& assignment : update.assignments) collect(assignment.node(), seen, nodes);
  }
  std::sort(nodes.begin(), nodes.end(), [](const Node* a, const Node* b) { return a->id < b->id; });
  for (const Node* node : nodes) {
    std::string label(node->op().name());
    if (const std::string attributes = to_string(node->op().attributes()); !attributes.empty())
      label += fmt::format("({})", attributes);
    const Spec& spec = node->outputs[0].spec;
    out << fmt::format("{:<28} depth {:<4} {:<9} {:<16} {:<8} {}:{}\n", label, node->depth, name(node->tag),
                       spec.shape.str(), name(spec.dtype),
                       std::filesystem::path(node->where.file_name()).filename().string(),
                       node->where.line());
  }
}

void Variable::print_tree() const { print_tree(std::cout); }

}  // namespace espalier
