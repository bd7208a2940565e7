#include "espalier/executor/graph/graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "espalier/core/error.h"
#include "espalier/executor/graph/rewriter.h"

namespace espalier {

void Graph::make_constant(uint32_t node, Tensor value) {
  GraphNode& n = nodes[node];
  n.op = constant_op();
  n.inputs.clear();
  n.constant = std::make_shared<Tensor>(std::move(value));
}

void Graph::remove_unless(const std::vector<bool>& keep) {
  GraphRewriter rewriter(*this);
  for (uint32_t i = 0; i < nodes.size(); ++i)
    if (!keep[i]) rewriter.remove(i);
  rewriter.finish();
}

std::vector<bool> made_of_leaves(const Graph& graph) {
  std::vector<bool> made(graph.nodes.size(), false);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    made[i] = n.op->effect() == Effect::none && !n.op->feed() && !n.op->traits().runs_on_host &&
              std::ranges::all_of(n.inputs, [&](ValueRef v) { return made[v.node]; });
  }
  return made;
}

Specs infer_outputs(const Graph& graph, const GraphNode& node) {
  InputSpecs specs;
  for (const ValueRef& input : node.inputs) specs.push_back(&graph.spec(input));
  return located(node.where, [&] { return node.op->infer(specs); });
}

std::string line_of(const std::source_location& where) {
  return fmt::format("{}:{}", std::filesystem::path(where.file_name()).filename().string(), where.line());
}

std::string Graph::str() const {
  std::string text;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    const GraphNode& n = nodes[i];
    text += fmt::format("%{} = {}", i, n.op->name());
    if (const std::string attributes = to_string(n.op->attributes()); !attributes.empty())
      text += fmt::format("({})", attributes);
    for (const ValueRef& input : n.inputs)
      text +=
          input.output ? fmt::format(" %{}.{}", input.node, input.output) : fmt::format(" %{}", input.node);
    for (const Spec& spec : n.outputs) text += fmt::format(" : {} {}", name(spec.dtype), spec.shape.str());
    if (n.tag != Tag::forward) text += fmt::format(" [{}]", name(n.tag));
    text += '\n';
  }
  text += "results:";
  for (const ValueRef& result : results) text += fmt::format(" %{}", result.node);
  return text + "\n";
}

}  // namespace espalier
