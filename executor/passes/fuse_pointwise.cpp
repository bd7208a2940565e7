#include <algorithm>
#include <map>
#include <queue>
#include <set>
#include <tuple>

#include "espalier/core/cpu/cast_row.h"
#include "espalier/core/op_names.h"
#include "espalier/executor/fused/convolution_epilogue.h"
#include "espalier/executor/fused/fused_op.h"
#include "espalier/executor/graph/adjacency.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/clusters.h"
#include "espalier/executor/passes/duplicates.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/elementwise/cast.h"

namespace espalier {

namespace {

/// Replaces each cluster of two or more nodes by one node.
class Fuser {
 public:
  Fuser(Graph& graph, const Clustering& clustering)
      : graph_(graph),
        clustering_(clustering),
        copies_(find_duplicates(graph, clustering)),
        rewriter_(graph) {}

  bool run() {
    for (size_t c = 0; c < copies_.size(); ++c) {
      const Cluster& cluster = clustering_.clusters()[c];
      fused_.push_back(cluster.members.size() > 1 || !copies_[c].empty() || follows_an_anchor(cluster));
    }
    if (std::find(fused_.begin(), fused_.end(), true) == fused_.end()) return false;
    find_needed();
    order();
    return true;
  }

 private:
  bool is_fused(uint32_t node) const {
    const uint32_t c = clustering_.cluster_of(node);
    return c != Clustering::none && fused_[c];
  }
  /// Returns true for a single node on an anchor, such as the bias of a product: fuse_matmul makes it an
  /// epilogue.
  bool follows_an_anchor(const Cluster& cluster) const {
    if (cluster.members.size() != 1 || clustering_.kind(cluster.members[0]) != Instruction::Kind::map)
      return false;
    const GraphNode& n = graph_.nodes[cluster.members[0]];
    return std::any_of(n.inputs.begin(), n.inputs.end(), [&](const ValueRef& input) {
      const Op& op = *graph_.nodes[input.node].op;
      return op.traits().anchors_epilogue || ConvolutionEpilogue::anchors(op, graph_.device);
    });
  }

  /// The members of a cluster and the copies in its kernel, in the order of the graph.
  std::vector<uint32_t> computed_by(uint32_t cluster) const {
    std::vector<uint32_t> nodes;
    std::ranges::merge(clustering_.clusters()[cluster].members, copies_[cluster], std::back_inserter(nodes));
    return nodes;
  }
  /// What a node reads where the kernel of a cluster computes it: the source of an operand below its views if
  /// the kernel computes that, else the operand itself.
  ValueRef operand_of(uint32_t cluster, uint32_t node, size_t input) const {
    const ValueRef ref = graph_.nodes[node].inputs[input];
    const ValueRef source = clustering_.views().value_of(ref);
    return clustering_.cluster_of(source.node) == cluster ? source : ref;
  }
  bool computes(uint32_t cluster, uint32_t node) const {
    return clustering_.cluster_of(node) == cluster || std::ranges::binary_search(copies_[cluster], node);
  }
  /// Calls `f(operand)` for what a node reads where the kernel of a cluster computes it, but for constants.
  template <class F>
  void each_operand(uint32_t cluster, uint32_t node, F&& f) const {
    for (size_t k = 0; k < graph_.nodes[node].inputs.size(); ++k)
      if (graph_.nodes[node].op->reads_elements(k) && !filled(node, k)) f(operand_of(cluster, node, k));
  }

  /// Finds what results and effects depend on: the values that kernels must write, and the nodes that each
  /// has to compute for them.
  void find_needed() {
    first_output_.reserve(graph_.nodes.size() + 1);
    uint32_t outputs = 0;
    for (const GraphNode& n : graph_.nodes) {
      first_output_.push_back(outputs);
      outputs += static_cast<uint32_t>(n.outputs.size());
    }
    first_output_.push_back(outputs);
    needed_.assign(outputs, false);
    live_.assign(graph_.nodes.size(), false);
    std::vector<ValueRef> values(graph_.results);
    const auto read_inputs = [&](uint32_t i) {
      if (live_[i]) return;
      live_[i] = true;
      values.insert(values.end(), graph_.nodes[i].inputs.begin(), graph_.nodes[i].inputs.end());
    };
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i)
      if (has_effect(i)) read_inputs(i);
    std::vector<std::pair<uint32_t, uint32_t>> computed;  // clusters, and nodes that their kernels compute
    while (!values.empty()) {
      const ValueRef v = values.back();
      values.pop_back();
      const uint32_t at = first_output_[v.node] + v.output;
      if (needed_[at]) continue;
      needed_[at] = true;
      if (!is_fused(v.node)) {
        read_inputs(v.node);
        continue;
      }
      computed.emplace_back(clustering_.cluster_of(v.node), v.node);
      while (!computed.empty()) {
        const uint32_t cluster = computed.back().first, node = computed.back().second;
        computed.pop_back();
        if (is_live(cluster, node)) continue;
        if (clustering_.cluster_of(node) == cluster)
          live_[node] = true;
        else
          live_copies_.emplace(cluster, node);
        each_operand(cluster, node, [&](ValueRef operand) {
          if (computes(cluster, operand.node))
            computed.emplace_back(cluster, operand.node);
          else
            values.push_back(operand);
        });
      }
    }
  }
  bool has_effect(uint32_t i) const {
    const Effect effect = graph_.nodes[i].op->effect();
    return effect == Effect::writes_leaf || effect == Effect::communicates;
  }
  bool is_live(uint32_t cluster, uint32_t node) const {
    return clustering_.cluster_of(node) == cluster ? live_[node] : live_copies_.contains({cluster, node});
  }
  bool is_needed(uint32_t i) const {
    for (uint32_t at = first_output_[i]; at < first_output_[i + 1]; ++at)
      if (needed_[at]) return true;
    return false;
  }
  std::optional<double> filled(uint32_t node, size_t input) const {
    const ValueRef ref = graph_.nodes[node].inputs[input];
    const auto fill = fill_of(graph_, ref);
    // A double does not represent large integers exactly.
    if (!fill || (graph_.spec(ref).dtype == DType::int64 && !(*fill < 1e15 && *fill > -1e15)))
      return std::nullopt;
    return fill;
  }

  /// Sorts units (clusters and single nodes) topologically, as close to the old order as possible;
  /// assignments stay last.
  void order() {
    const size_t n = graph_.nodes.size();
    std::vector<uint32_t> unit(n);  // for each node: the last member of its cluster, or the node
    Adjacency::Edges edges;
    edges.reserve(2 * n);
    std::vector<uint32_t> waits(n, 0);
    for (uint32_t i = 0; i < n; ++i)
      unit[i] = is_fused(i) ? clustering_.clusters()[clustering_.cluster_of(i)].members.back() : i;
    const auto add_edge = [&](uint32_t from, uint32_t to) {
      if (from == to) return;
      edges.push_back({from, to});
      ++waits[to];
    };
    for (uint32_t i = 0; i < n; ++i)
      if (!is_fused(i) && live_[i])
        for (const ValueRef& input : graph_.nodes[i].inputs) add_edge(unit[input.node], i);
    for (uint32_t c = 0; c < fused_.size(); ++c) {
      if (!fused_[c]) continue;
      for (const uint32_t i : computed_by(c)) {
        if (!is_live(c, i)) continue;
        each_operand(c, i, [&](ValueRef operand) {
          if (!computes(c, operand.node))
            add_edge(unit[operand.node], unit[clustering_.clusters()[c].members[0]]);
        });
      }
    }
    const Adjacency users(n, edges);
    std::priority_queue<uint32_t, std::vector<uint32_t>, std::greater<>> ready;
    std::vector<uint32_t> assignments;
    for (uint32_t i = 0; i < n; ++i)
      if (unit[i] == i && waits[i] == 0) ready.push(i);
    while (!ready.empty()) {
      const uint32_t u = ready.top();
      ready.pop();
      if (graph_.nodes[u].op->has_side_effects())
        assignments.push_back(u);
      else
        emit(u);
      for (const uint32_t user : users.of(u))
        if (--waits[user] == 0) ready.push(user);
    }
    std::sort(assignments.begin(), assignments.end());
    for (const uint32_t u : assignments) emit(u);
    rewriter_.finish();
  }

  void emit(uint32_t u) {
    if (is_fused(u)) return fuse(clustering_.cluster_of(u));
    if (!live_[u])
      rewriter_.remove(u);
    else
      rewriter_.move_last(u);
  }

  void fuse(uint32_t number) {
    const Cluster& cluster = clustering_.clusters()[number];
    for (const uint32_t i : cluster.members) rewriter_.remove(i);
    if (std::ranges::none_of(cluster.members, [&](uint32_t i) { return is_needed(i); })) return;
    Program program;
    program.elements = cluster.elements;
    program.row = cluster.row;
    GraphNode node;
    node.tag = Tag::forward;
    Positions position;
    for (const uint32_t i : computed_by(number)) {
      if (!is_live(number, i)) continue;
      position.instructions[i] =
          append(instruction(number, i, program, node, position), program, node, position);
      node.tag = std::max(node.tag, graph_.nodes[i].tag);
    }
    node.where = graph_.nodes[cluster.members.back()].where;
    std::vector<uint32_t> results;
    for (const uint32_t i : cluster.members) {
      if (!is_needed(i)) continue;
      results.push_back(i);
      program.outputs.push_back(position.instructions[i]);
      node.outputs.push_back(graph_.nodes[i].outputs[0]);
    }
    node.op = std::make_shared<FusedOp>(std::move(program), node.outputs);
    const uint32_t fused = rewriter_.add_last(std::move(node));
    for (uint32_t k = 0; k < results.size(); ++k) rewriter_.replace({results[k], 0}, {fused, k});
  }

  /// Where the nodes and the operands of a cluster are in its program.
  struct Positions {
    std::map<uint32_t, uint32_t> instructions = {};
    std::map<ValueRef, uint32_t> inputs = {};
    /// Operands and those shapes in which they were widened.
    std::vector<std::tuple<Argument, Shape, Argument>> widened = {};
  };

  /// Adds an instruction, and returns where its value is. On the CPU what has 16-bit operands is computed in
  /// float32: they are widened before it, and its result is rounded behind it.
  uint32_t append(Instruction n, Program& program, const GraphNode& node, Positions& position) const {
    const DType result = n.dtype;
    const bool computes = graph_.device == DeviceType::cpu && !is_op(*n.op, "cast");
    if (computes) {
      for (Argument& argument : n.arguments) argument = widened(argument, n.shape, program, node, position);
      if (is_half(result)) n.dtype = DType::float32;
    }
    const bool rounds = n.dtype != result;
    Instruction cast = rounds ? conversion(DType::float32, result, n.extent, n.shape) : Instruction();
    program.instructions.push_back(std::move(n));
    if (rounds) {
      cast.arguments = {{Argument::From::value, last_of(program), cast.extent}};
      program.instructions.push_back(std::move(cast));
    }
    return last_of(program);
  }
  static uint32_t last_of(const Program& program) {
    return static_cast<uint32_t>(program.instructions.size()) - 1;
  }
  static Instruction conversion(DType from, DType to, Extent extent, const Shape& shape) {
    Instruction result;
    result.extent = extent;
    result.op = cast_op(to);
    result.function = cast_row(from, to);
    result.dtype = to;
    result.shape = shape;
    return result;
  }
  Argument widened(const Argument& argument, const Shape& shape, Program& program, const GraphNode& node,
                   Positions& position) const {
    const DType type = dtype_of(argument, program, node);
    if (!is_half(type)) return argument;
    const bool is_value = argument.from == Argument::From::value;
    const Shape& seen = is_value ? program.instructions[argument.index].shape : shape;
    for (const auto& [before, in, after] : position.widened)
      if (before == argument && in == seen) return after;
    Instruction cast = conversion(type, DType::float32, argument.extent, seen);
    cast.arguments = {argument};
    program.instructions.push_back(std::move(cast));
    const Argument result{Argument::From::value, last_of(program), argument.extent};
    position.widened.emplace_back(argument, program.instructions.back().shape, result);
    return result;
  }
  DType dtype_of(const Argument& argument, const Program& program, const GraphNode& node) const {
    switch (argument.from) {
      case Argument::From::constant: return program.constants[argument.index].dtype;
      case Argument::From::value: return program.instructions[argument.index].dtype;
      case Argument::From::input: break;
    }
    return graph_.spec(node.inputs[argument.index]).dtype;
  }
  /// A number of one type, in that in which it is read.
  static Argument constant(double value, DType from, DType to, Program& program) {
    if (from != to) value = full({}, value, from).to(DType::float64).item();
    const Program::Constant wanted{value, to};
    auto& known = program.constants;
    auto at = std::find(known.begin(), known.end(), wanted);
    if (at == known.end()) at = known.insert(known.end(), wanted);
    return {Argument::From::constant, static_cast<uint32_t>(at - known.begin()), Extent::uniform};
  }

  Instruction instruction(uint32_t cluster, uint32_t i, Program& program, GraphNode& node,
                          Positions& position) {
    const GraphNode& n = graph_.nodes[i];
    InputSpecs specs, computed;
    for (const ValueRef& input : n.inputs) specs.push_back(&graph_.spec(input));
    const std::vector<Spec> computed_in = computed_specs(graph_, n);
    for (const Spec& spec : computed_in) computed.push_back(&spec);
    Instruction result;
    result.kind = clustering_.kind(i);
    result.extent = clustering_.extent(i);
    result.op = n.op;
    result.dtype = n.outputs[0].dtype;
    result.period = clustering_.period(i);
    result.shape = n.outputs[0].shape;
    switch (result.kind) {
      case Instruction::Kind::map: result.function = n.op->loops(computed).row; break;
      case Instruction::Kind::whole_row: result.whole_row = n.op->loops(computed).whole_row; break;
      default: result.fold = n.op->folding(specs)->fold; result.shape = specs[0]->shape;
    }
    const Extent reads = result.kind == Instruction::Kind::map ? result.extent : Extent::full;
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      if (!n.op->reads_elements(k)) continue;
      if (const auto fill = filled(i, k)) {
        const DType read = graph_.device == DeviceType::cpu ? computed[k]->dtype : specs[k]->dtype;
        result.arguments.push_back(constant(*fill, specs[k]->dtype, read, program));
        continue;
      }
      const ValueRef operand = operand_of(cluster, i, k);
      if (computes(cluster, operand.node)) {
        result.arguments.push_back({Argument::From::value, position.instructions.at(operand.node),
                                    clustering_.extent(operand.node)});
        continue;
      }
      const auto [at, fresh] = position.inputs.emplace(operand, static_cast<uint32_t>(node.inputs.size()));
      if (fresh) node.inputs.push_back(operand);
      const bool one = specs[k]->shape.elements() == 1 && program.elements > 1;
      result.arguments.push_back({Argument::From::input, at->second, one ? Extent::uniform : reads});
    }
    return result;
  }

  Graph& graph_;
  const Clustering& clustering_;
  const Duplicates copies_;
  std::vector<bool> fused_;                              // for each cluster
  std::vector<uint32_t> first_output_;                   // by node: its first output, and one for the end
  std::vector<bool> needed_;                             // by output
  std::vector<bool> live_;                               // by node: computed in its own kernel
  std::set<std::pair<uint32_t, uint32_t>> live_copies_;  // clusters and copies
  GraphRewriter rewriter_;
};

}  // namespace

bool fuse_pointwise(Graph& graph, const CompileOptions&) {
  const bool detached = detach_shapes(graph);  // else a kernel could depend on the shape of its own output
  Clustering clustering(graph);
  clustering.join();
  const bool fused = Fuser(graph, clustering).run();
  if (fused) dead_nodes(graph);
  return detached || fused;
}

}  // namespace espalier
