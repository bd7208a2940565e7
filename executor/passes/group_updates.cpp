#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "espalier/executor/fused/fused_op.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// Kernels with equal text run the same program on tensors of any size. Extents are left out: for a single
/// element, full and uniform are the same.
std::string text_of(const GraphNode& n, const FusedOp& op) {
  std::string text = op.program().str();
  constexpr std::string_view uniform = ":uniform";
  for (size_t at = text.find(uniform); at != std::string::npos; at = text.find(uniform, at))
    text.erase(at, uniform.size());
  for (const Instruction& instruction : op.program().instructions)
    text += fmt::format(" {}", name(instruction.dtype));
  return fmt::format("{} {}", text, n.inputs.size());
}

/// Returns true if a group can run the program. On a GPU, members may fold all of their elements.
bool is_flat(const Program& program, DeviceType device) {
  return std::all_of(program.instructions.begin(), program.instructions.end(), [&](const Instruction& n) {
    if (n.kind == Instruction::Kind::fold_all) return device != DeviceType::cpu;
    return n.kind == Instruction::Kind::map && n.extent != Extent::row;
  });
}

bool is_large(const GraphNode& n, DeviceType device) {
  return device == DeviceType::cpu &&
         std::ranges::any_of(n.outputs, [](const Spec& s) { return s.shape.elements() > large_update; });
}

/// A set of nodes that run the same program and do not depend on each other; empty if there is none.
std::vector<uint32_t> next_group(const Graph& graph) {
  std::vector<bool> ends(graph.nodes.size(), true);  // true if outputs are only assigned
  for (const GraphNode& n : graph.nodes)
    for (const ValueRef& input : n.inputs)
      if (!n.op->has_side_effects()) ends[input.node] = false;
  for (const ValueRef& result : graph.results) ends[result.node] = false;

  std::map<std::string, std::vector<uint32_t>> alike;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    const auto* op = dynamic_cast<const FusedOp*>(n.op.get());
    if (op && n.tag == Tag::update && (ends[i] || graph.device != DeviceType::cpu) &&
        !is_large(n, graph.device) && is_flat(op->program(), graph.device))
      alike[text_of(n, *op)].push_back(i);
  }
  for (const auto& [text, nodes] : alike) {
    if (nodes.size() < 2) continue;
    // For each node, the length of the longest chain of these nodes that leads to it. Nodes with equal
    // lengths do not depend on each other.
    std::vector<uint32_t> above(graph.nodes.size(), 0);
    std::map<uint32_t, std::vector<uint32_t>> apart;
    for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
      for (const ValueRef& input : graph.nodes[i].inputs) above[i] = std::max(above[i], above[input.node]);
      if (std::binary_search(nodes.begin(), nodes.end(), i)) apart[++above[i]].push_back(i);
    }
    for (const auto& [number, group] : apart)
      if (group.size() > 1) return group;
  }
  return {};
}

/// Inserts the group at its last node, where all inputs are available and before any assignment.
void make_group(Graph& graph, const std::vector<uint32_t>& nodes) {
  const uint32_t last = nodes.back();
  std::vector<FusedGroup::Member> members;
  GraphNode group;
  group.tag = graph.nodes[last].tag;
  group.where = graph.nodes[last].where;
  for (const uint32_t i : nodes) {
    const GraphNode& n = graph.nodes[i];
    members.push_back({std::static_pointer_cast<const FusedOp>(n.op), n.inputs.size(), n.outputs.size()});
    group.inputs.append(n.inputs.begin(), n.inputs.end());
    group.outputs.append(n.outputs.begin(), n.outputs.end());
  }
  group.op = std::make_shared<FusedGroup>(std::move(members));

  GraphRewriter rewriter(graph);
  const uint32_t number = rewriter.add_after(last, std::move(group));
  std::vector<bool> waits(graph.nodes.size(), false);  // nodes that depend on the group
  uint32_t output = 0;
  for (const uint32_t i : nodes) {
    for (uint32_t k = 0; k < graph.nodes[i].outputs.size(); ++k) rewriter.replace({i, k}, {number, output++});
    rewriter.remove(i);
    waits[i] = true;
  }
  for (uint32_t i = 0; i < last; ++i) {
    if (waits[i]) continue;
    for (const ValueRef& input : graph.nodes[i].inputs) waits[i] = waits[i] || waits[input.node];
    if (waits[i]) rewriter.move_after(i, number);
  }
  rewriter.finish();
}

}  // namespace

bool group_updates(Graph& graph, const CompileOptions&) {
  bool changed = false;
  for (auto group = next_group(graph); !group.empty(); group = next_group(graph)) {
    make_group(graph, group);
    changed = true;
  }
  return changed;
}

}  // namespace espalier
