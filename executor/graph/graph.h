// Graph: a tree taken out of the user's hands, for passes to rewrite. Nodes are in an order in which they can
// run.
#pragma once
#include <map>
#include <memory>
#include <vector>

#include "espalier/core/feed.h"
#include "espalier/core/node.h"

namespace espalier {

/// An output of a node of the graph, by position.
struct ValueRef {
  uint32_t node = 0;
  uint32_t output = 0;
  friend auto operator<=>(const ValueRef&, const ValueRef&) = default;
};

struct GraphNode {
  OpPtr op;
  std::vector<ValueRef> inputs;
  std::vector<Spec> outputs;
  Tag tag = Tag::forward;
  std::source_location where;
  Variable leaf;    ///< parameters, variables and states: the user's leaf, which the plan reads and writes
  Tensor constant;  ///< constants: the value
  int64_t stream = -1;   ///< random nodes: which of the step's streams they draw
  int64_t row_runs = 0;  ///< and in how many runs they draw for all rows of a batch; 0: not for rows
  std::vector<const Node*> gathered = {};  ///< leaves whose new values come here from the ranks that own them

  bool is_constant() const { return constant.defined(); }
};

/// The first sizes of a feed's batches in one plan; other sizes are the feed's.
using FeedRows = std::map<const Feed*, int64_t>;

class Graph {
 public:
  std::vector<GraphNode> nodes;
  /// What must be readable after a step.
  std::vector<ValueRef> results;
  /// The streams of random numbers that a step takes.
  int64_t streams = 0;
  /// The kind of device that will run it.
  DeviceType device = DeviceType::cpu;

  const Spec& spec(ValueRef v) const { return nodes[v.node].outputs[v.output]; }
  /// Makes a node a constant.
  void make_constant(uint32_t node, Tensor value);
  /// Removes the nodes for which `keep` is false; no node may read them.
  void remove_unless(const std::vector<bool>& keep);
  /// A line a node.
  std::string str() const;
};

/// The tree below `results` and `updates` as a graph, with shapes for these sizes of batches. In inference
/// the ops that behave otherwise in training are replaced.
Graph freeze(const std::vector<Variable>& results, const std::vector<Variable>& updates, const FeedRows& rows,
             bool inference);

/// What a node's outputs are, given its inputs. Throws what inference throws, with the user's line.
std::vector<Spec> infer_outputs(const Graph& graph, const GraphNode& node);
/// Throws Error naming `after` if the graph cannot be run: order, shapes, or an assignment before a reader.
void verify(const Graph& graph, std::string_view after);

/// "digits.cpp:17"
std::string line_of(const std::source_location& where);

}  // namespace espalier
