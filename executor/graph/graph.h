// Graph: a frozen copy of a tree, which passes rewrite. Nodes are in topological order.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "espalier/core/feed.h"
#include "espalier/core/node.h"

namespace espalier {

/// An output of a node, by position in the graph.
struct ValueRef {
  uint32_t node = 0;
  uint32_t output = 0;
  friend auto operator<=>(const ValueRef&, const ValueRef&) = default;
};

struct GraphNode {
  OpPtr op;
  SmallVector<ValueRef, 2> inputs;
  Specs outputs;
  Tag tag = Tag::forward;
  CallSite where;
  Variable leaf;  ///< parameters, variables and states: the user's leaf, which the plan reads and writes
  std::shared_ptr<const Tensor> constant;  ///< constants: the value
  int64_t stream = -1;                     ///< random nodes: the stream of the step that they draw from
  int64_t row_runs = 0;  ///< random nodes: the runs in which they draw for all rows; 0: not for rows
  std::vector<const Node*> gathered = {};  ///< leaves whose new values the node receives from their owners

  bool is_constant() const { return constant != nullptr; }
};

/// The sizes of a feed's batches in one plan.
struct FeedSize {
  int64_t rows = 0;
  std::vector<int64_t> open = {};  ///< of the open axes, in their order
};
using FeedSizes = std::map<const Feed*, FeedSize>;

class Graph {
 public:
  std::vector<GraphNode> nodes;
  /// The values that must be readable after a step.
  std::vector<ValueRef> results;
  /// The number of random streams that a step takes.
  int64_t streams = 0;
  /// The type of device that will run the graph.
  DeviceType device = DeviceType::cpu;

  const Spec& spec(ValueRef v) const { return nodes[v.node].outputs[v.output]; }
  /// Replaces a node by a constant.
  void make_constant(uint32_t node, Tensor value);
  /// Removes the nodes for which `keep` is false; no node may read them.
  void remove_unless(const std::vector<bool>& keep);
  /// Text with one line for each node.
  std::string str() const;
  /// Frees the memory that is kept for the next pass.
  void release_spare() { spare_ = {}; }

 private:
  friend class GraphRewriter;
  std::vector<GraphNode> spare_;  // empty, with the capacity of an earlier `nodes`: new pages take long
};

/// Converts the tree below `results` and `updates` to a graph, with shapes for batches of these sizes. For
/// inference, replaces ops by their `for_inference`. The forward pass writes states only if `succeeded`, a
/// node below the updates, is true; undefined: always.
Graph freeze(const std::vector<Variable>& results, const std::vector<Variable>& updates,
             const FeedSizes& sizes, bool inference, const Variable& succeeded = {});

/// Which nodes are made of leaves and constants alone, by ops that draw nothing and are no functions of the
/// user.
std::vector<bool> made_of_leaves(const Graph& graph);

/// Infers the outputs of a node from its inputs. Throws the errors of inference, with the user's line.
Specs infer_outputs(const Graph& graph, const GraphNode& node);
/// Throws Error naming `after` if the graph cannot be run: order, shapes, or an assignment before a reader.
void verify(const Graph& graph, std::string_view after);

/// "digits.cpp:17"
std::string line_of(const std::source_location& where);

}  // namespace espalier
