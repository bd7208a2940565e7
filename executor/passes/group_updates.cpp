#include <fmt/format.h>

#include <map>

#include "espalier/executor/fused/fused_op.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// Kernels with one text run the same program, over whatever sizes.
std::string text_of(const GraphNode& n, const FusedOp& op) {
  std::string text = op.program().str();
  for (const Instruction& instruction : op.program().instructions)
    text += fmt::format(" {}", name(instruction.dtype));
  return fmt::format("{} {}", text, n.inputs.size());
}

bool is_flat(const Program& program) {
  for (const Instruction& n : program.instructions)
    if (n.kind != Instruction::Kind::map || n.level == Level::row) return false;
  return true;
}

}  // namespace

bool group_updates(Graph& graph) {
  // Kernels whose results are only assigned do not read each other.
  std::vector<bool> ends(graph.nodes.size(), true);
  for (const GraphNode& n : graph.nodes)
    for (const ValueRef& input : n.inputs)
      if (!n.op->has_side_effects()) ends[input.node] = false;
  for (const ValueRef& result : graph.results) ends[result.node] = false;

  std::map<std::string, std::vector<uint32_t>> alike;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    const auto* op = dynamic_cast<const FusedOp*>(n.op.get());
    if (op && ends[i] && n.tag == Tag::update && is_flat(op->program())) alike[text_of(n, *op)].push_back(i);
  }
  bool changed = false;
  std::vector<bool> keep(graph.nodes.size(), true);
  for (const auto& [text, nodes] : alike) {
    if (nodes.size() < 2) continue;
    changed = true;
    // The last one becomes the group: all inputs are there, and no assignment has come yet.
    std::vector<FusedGroup::Member> members;
    std::vector<ValueRef> inputs;
    std::vector<Spec> outputs;
    std::map<ValueRef, uint32_t> now;
    for (const uint32_t i : nodes) {
      const GraphNode& n = graph.nodes[i];
      members.push_back({std::static_pointer_cast<const FusedOp>(n.op), n.inputs.size(), n.outputs.size()});
      inputs.insert(inputs.end(), n.inputs.begin(), n.inputs.end());
      for (uint32_t k = 0; k < n.outputs.size(); ++k) {
        now[{i, k}] = static_cast<uint32_t>(outputs.size());
        outputs.push_back(n.outputs[k]);
      }
      keep[i] = i == nodes.back();
    }
    GraphNode& group = graph.nodes[nodes.back()];
    group.op = std::make_shared<FusedGroup>(std::move(members));
    group.inputs = std::move(inputs);
    group.outputs = std::move(outputs);
    for (GraphNode& n : graph.nodes)
      if (n.op->has_side_effects())
        if (const auto at = now.find(n.inputs[1]); at != now.end()) n.inputs[1] = {nodes.back(), at->second};
  }
  if (changed) graph.remove_unless(keep);
  return changed;
}

}  // namespace espalier
