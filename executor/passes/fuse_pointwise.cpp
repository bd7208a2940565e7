#include <algorithm>
#include <map>
#include <queue>
#include <tuple>

#include "espalier/core/cpu/cast_row.h"
#include "espalier/core/op_names.h"
#include "espalier/executor/fused/convolution_epilogue.h"
#include "espalier/executor/fused/fused_op.h"
#include "espalier/executor/graph/adjacency.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/clusters.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/elementwise/cast.h"

namespace espalier {

namespace {

/// Replaces each cluster of two or more nodes by one node.
class Fuser {
 public:
  Fuser(Graph& graph, const Clustering& clustering)
      : graph_(graph), clustering_(clustering), rewriter_(graph) {}

  bool run() {
    for (const Cluster& cluster : clustering_.clusters())
      fused_.push_back(cluster.members.size() > 1 || follows_an_anchor(cluster));
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

  /// The source of an operand below its views if that is in the node's cluster, else the operand itself.
  ValueRef operand_of(uint32_t node, size_t input) const {
    const ValueRef ref = graph_.nodes[node].inputs[input];
    const ValueRef source = clustering_.views().value_of(ref);
    return clustering_.cluster_of(source.node) == clustering_.cluster_of(node) ? source : ref;
  }

  /// Finds the values that kernels must write: those read by results, other nodes and other clusters.
  void find_needed() {
    first_output_.reserve(graph_.nodes.size() + 1);
    uint32_t outputs = 0;
    for (const GraphNode& n : graph_.nodes) {
      first_output_.push_back(outputs);
      outputs += static_cast<uint32_t>(n.outputs.size());
    }
    first_output_.push_back(outputs);
    needed_.assign(outputs, false);
    std::vector<ValueRef> todo(graph_.results);
    const auto read = [&](uint32_t i) {
      for (size_t k = 0; k < graph_.nodes[i].inputs.size(); ++k) {
        if (!is_fused(i)) {
          todo.push_back(graph_.nodes[i].inputs[k]);
          continue;
        }
        if (!graph_.nodes[i].op->reads_elements(k) || filled(i, k)) continue;
        const ValueRef operand = operand_of(i, k);
        if (clustering_.cluster_of(operand.node) != clustering_.cluster_of(i)) todo.push_back(operand);
      }
    };
    for (uint32_t i = 0; i < graph_.nodes.size(); ++i)
      if (is_fused(i) || !graph_.nodes[i].op->is_view()) read(i);
    while (!todo.empty()) {
      const ValueRef v = todo.back();
      todo.pop_back();
      const uint32_t at = first_output_[v.node] + v.output;
      if (needed_[at]) continue;
      needed_[at] = true;
      if (!is_fused(v.node) && graph_.nodes[v.node].op->is_view()) read(v.node);
    }
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
    for (uint32_t i = 0; i < n; ++i)
      for (size_t k = 0; k < graph_.nodes[i].inputs.size(); ++k) {
        if (is_fused(i) && (!graph_.nodes[i].op->reads_elements(k) || filled(i, k))) continue;
        const ValueRef from = is_fused(i) ? operand_of(i, k) : graph_.nodes[i].inputs[k];
        if (unit[from.node] == unit[i]) continue;
        edges.push_back({unit[from.node], unit[i]});
        ++waits[unit[i]];
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
    if (is_fused(u)) return fuse(clustering_.clusters()[clustering_.cluster_of(u)]);
    if (graph_.nodes[u].op->is_view() && !is_needed(u))
      rewriter_.remove(u);
    else
      rewriter_.move_last(u);
  }

  void fuse(const Cluster& cluster) {
    Program program;
    program.elements = cluster.elements;
    program.row = cluster.row;
    GraphNode node;
    node.tag = Tag::forward;
    Positions position;
    for (const uint32_t i : cluster.members) {
      position.instructions[i] = append(instruction(i, program, node, position), program, node, position);
      node.tag = std::max(node.tag, graph_.nodes[i].tag);
    }
    node.where = graph_.nodes[cluster.members.back()].where;
    std::vector<uint32_t> results;
    for (const uint32_t i : cluster.members) {
      rewriter_.remove(i);
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

  Instruction instruction(uint32_t i, Program& program, GraphNode& node, Positions& position) {
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
      const ValueRef operand = operand_of(i, k);
      if (clustering_.cluster_of(operand.node) == clustering_.cluster_of(i)) {
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
  std::vector<bool> fused_;             // for each cluster
  std::vector<uint32_t> first_output_;  // by node: its first output, and one for the end
  std::vector<bool> needed_;            // by output
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
