// print_tree: what a Variable is made of, a line a node.
#include <fmt/format.h>

#include <filesystem>
#include <iostream>

#include "espalier/core/eval.h"
#include "espalier/core/tree.h"

namespace espalier {

void Variable::print_tree(std::ostream& out) const {
  if (!node_) {
    out << "undefined\n";
    return;
  }
  TreeWalk walk(node());
  if (const GradientRecord* record = node()->record.get()) {
    record->gradients.for_each([&](Node*, uint32_t, const Edge& gradient) { walk.enter(gradient.node()); });
    for (const GradientRecord::Update& update : record->updates)
      for (const Edge& assignment : update.assignments) walk.enter(assignment.node());
  }
  for (const Node* node : nodes_below(std::move(walk))) {
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
