#include <algorithm>

#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/executor/sharding/gradient_bucket.h"
#include "espalier/executor/sharding/parameter_gather.h"

namespace espalier {

bool drop_updates(Graph& graph, const CompileOptions& options) {
  if (!options.shard || !options.shard->accumulates_only()) return false;
  std::vector<bool> keep;
  for (const GraphNode& n : graph.nodes) keep.push_back(!n.op->has_side_effects());
  graph.remove_unless(keep);
  return true;
}

bool own_updates(Graph& graph, const CompileOptions& options) {
  if (!options.shard || !options.shard->owners) return false;
  std::vector<bool> keep;
  for (const GraphNode& n : graph.nodes) {
    const bool assigns = n.op->has_side_effects();
    const int owner = assigns ? options.shard->owners->of(graph.nodes[n.inputs[0].node].leaf.node()) : -1;
    keep.push_back(owner < 0 || owner == options.shard->shard.replica);
  }
  graph.remove_unless(keep);
  dead_nodes(graph);  // states of other owners must not be read: this replica does not have them
  return true;
}

bool gather_parameters(Graph& graph, const CompileOptions& options) {
  if (!options.shard || !options.shard->owners || options.shard->accumulates_only()) return false;
  const std::shared_ptr<const StateOwners>& owners = options.shard->owners;
  GraphNode gather;
  gather.op = std::make_shared<ParameterGather>(owners);
  gather.tag = Tag::update;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    if (waits_for_gradients(*n.op)) {
      gather.inputs.push_back({i, static_cast<uint32_t>(n.outputs.size() - 1)});
      gather.where = n.where;
    } else if (n.op->has_side_effects() && is_parameter(*graph.nodes[n.inputs[0].node].op)) {
      gather.inputs.push_back({i, 0});
    }
  }
  for (const auto& [leaf, owner] : owners->owner) gather.gathered.push_back(leaf);
  for (const ValueRef& input : gather.inputs) gather.outputs.push_back(graph.spec(input));
  graph.nodes.push_back(std::move(gather));
  return true;
}

bool gather_last(Graph& graph, const CompileOptions&) {
  GraphRewriter rewriter(graph);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (!graph.nodes[i].gathered.empty()) rewriter.move_last(i);
  rewriter.finish();
  return true;
}

}  // namespace espalier
