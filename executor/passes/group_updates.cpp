#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "espalier/executor/fused/fused_op.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// Kernels with one text run the same program, over whatever sizes: where there is one element, levels do not
/// differ.
std::string text_of(const GraphNode& n, const FusedOp& op) {
  std::string text = op.program().str();
  constexpr std::string_view uniform = ":uniform";
  for (size_t at = text.find(uniform); at != std::string::npos; at = text.find(uniform, at))
    text.erase(at, uniform.size());
  for (const Instruction& instruction : op.program().instructions)
    text += fmt::format(" {}", name(instruction.dtype));
  return fmt::format("{} {}", text, n.inputs.size());
}

/// Groups of a GPU may fold all elements of a member to one.
bool is_flat(const Program& program, DeviceType device) {
  return std::all_of(program.instructions.begin(), program.instructions.end(), [&](const Instruction& n) {
    if (n.kind == Instruction::Kind::fold_all) return device != DeviceType::cpu;
    return n.kind == Instruction::Kind::map && n.level != Level::row;
  });
}

/// Nodes that can be one, as they run the same program and do not read each other; none if there are no more.
std::vector<uint32_t> next_group(const Graph& graph) {
  std::vector<bool> ends(graph.nodes.size(), true);  // results are only assigned
  for (const GraphNode& n : graph.nodes)
    for (const ValueRef& input : n.inputs)
      if (!n.op->has_side_effects()) ends[input.node] = false;
  for (const ValueRef& result : graph.results) ends[result.node] = false;

  std::map<std::string, std::vector<uint32_t>> alike;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    const auto* op = dynamic_cast<const FusedOp*>(n.op.get());
    if (op && n.tag == Tag::update && (ends[i] || graph.device != DeviceType::cpu) &&
        is_flat(op->program(), graph.device))
      alike[text_of(n, *op)].push_back(i);
  }
  for (const auto& [text, nodes] : alike) {
    if (nodes.size() < 2) continue;
    // How many of them lie on the way to each node; those with equal numbers do not read each other.
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

/// The last one becomes the group: all inputs are there, and no assignment has come yet.
void make_group(Graph& graph, const std::vector<uint32_t>& nodes) {
  const uint32_t last = nodes.back();
  std::vector<FusedGroup::Member> members;
  std::vector<ValueRef> inputs;
  std::vector<Spec> outputs;
  std::map<ValueRef, ValueRef> now;
  for (const uint32_t i : nodes) {
    const GraphNode& n = graph.nodes[i];
    members.push_back({std::static_pointer_cast<const FusedOp>(n.op), n.inputs.size(), n.outputs.size()});
    inputs.insert(inputs.end(), n.inputs.begin(), n.inputs.end());
    for (uint32_t k = 0; k < n.outputs.size(); ++k) {
      now[{i, k}] = {last, static_cast<uint32_t>(outputs.size())};
      outputs.push_back(n.outputs[k]);
    }
  }
  GraphNode& group = graph.nodes[last];
  group.op = std::make_shared<FusedGroup>(std::move(members));
  group.inputs = std::move(inputs);
  group.outputs = std::move(outputs);

  const auto renew = [&](ValueRef& value) {
    if (const auto at = now.find(value); at != now.end()) value = at->second;
  };
  std::vector<bool> keep(graph.nodes.size(), true), waits(graph.nodes.size(), false);
  for (const uint32_t i : nodes) keep[i] = i == last;
  std::vector<double> position;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    GraphNode& n = graph.nodes[i];
    if (i != last && keep[i])
      for (ValueRef& input : n.inputs) {
        renew(input);
        waits[i] = waits[i] || input.node == last || waits[input.node];
      }
    position.push_back(waits[i] && i < last ? last + 0.5 : i);
  }
  for (ValueRef& result : graph.results) renew(result);
  std::vector<double> kept;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (keep[i]) kept.push_back(position[i]);
  graph.remove_unless(keep);
  graph.reorder(kept);
}

}  // namespace

bool group_updates(Graph& graph) {
  bool changed = false;
  for (auto group = next_group(graph); !group.empty(); group = next_group(graph)) {
    make_group(graph, group);
    changed = true;
  }
  return changed;
}

}  // namespace espalier
