// Convolutions take the program behind them into their node: biases, batch normalization with running
// statistics, residuals and activations.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>

#include "espalier/core/error.h"
#include "espalier/core/op_names.h"
#include "espalier/core/op_registry.h"
#include "espalier/executor/fused/convolution_epilogue.h"
#include "espalier/executor/fused/program_parts.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// Whether name and attributes say all that the op computes.
bool is_told_by_attributes(const Op& op) {
  if (is_custom_op(op)) return false;
  if (dynamic_cast<const FusedOp*>(&op)) return true;
  try {
    make_op(op.name(), op.attributes());
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// How a node is made of others, which are called by their numbers.
std::string line_of(const GraphNode& n, const std::map<uint32_t, size_t>& numbers) {
  if (n.leaf.defined()) return fmt::format("leaf {}", static_cast<const void*>(n.leaf.node()));
  if (n.is_constant()) return fmt::format("constant {}", static_cast<const void*>(n.constant.get()));
  std::string text = fmt::format("{} {}", n.op->name(), to_string(n.op->attributes()));
  if (!is_told_by_attributes(*n.op)) text += fmt::format(" {}", static_cast<const void*>(n.op.get()));
  for (const Spec& output : n.outputs) text += " " + output.shape.str();
  if (const auto* fused = dynamic_cast<const FusedOp*>(n.op.get()))
    for (const Instruction& instruction : fused->program().instructions)
      text += ";" + to_string(instruction.op->attributes());
  for (const ValueRef& input : n.inputs) text += fmt::format(" %{}.{}", numbers.at(input.node), input.output);
  return text;
}

/// Of which leaves a value is made, and how: a text that differs for values that may differ, with a line for
/// each node.
std::string recipe(const Graph& graph, ValueRef v) {
  std::set<uint32_t> nodes, left{v.node};
  while (!left.empty()) {
    const uint32_t node = *left.rbegin();
    left.erase(node);
    nodes.insert(node);
    if (!graph.nodes[node].leaf.defined())
      for (const ValueRef& input : graph.nodes[node].inputs) left.insert(input.node);
  }
  std::map<uint32_t, size_t> numbers;
  std::string text;
  for (const uint32_t node : nodes) {
    text += line_of(graph.nodes[node], numbers) + "\n";
    numbers.emplace(node, numbers.size());
  }
  return text + std::to_string(v.output);
}

bool is_anchor(const GraphNode& n, DeviceType device) {
  const DType dtype = n.outputs[0].dtype;
  const bool of_16_bits = device == DeviceType::cpu ? dtype == DType::bfloat16 : is_half(dtype);
  return ConvolutionEpilogue::anchors(*n.op, device) && (dtype == DType::float32 || of_16_bits) &&
         n.outputs[0].shape.elements() > 0;
}

std::vector<int> count_readers(const Graph& graph) {
  std::vector<int> readers(graph.nodes.size(), 0);
  for (const GraphNode& n : graph.nodes)
    for (const ValueRef& input : n.inputs) ++readers[input.node];
  for (const ValueRef& result : graph.results) ++readers[result.node];
  return readers;
}

/// What a convolution does of a program: with kernels that are scaled and packed, or as they are.
struct TakenProgram {
  ChannelProgram channels;
  bool packs;
};

class Fusion {
 public:
  Fusion(Graph& graph, bool inference, bool keeps)
      : graph_(graph),
        made_of_leaves_(made_of_leaves(graph)),
        inference_(inference),
        keeps_(keeps),
        readers_(count_readers(graph)) {}

  /// A program that reads several convolutions, as that behind a shortcut does, gives the chain behind each
  /// but one to a program of its own, if the convolution can do that. Nodes are numbered anew.
  bool divide_programs() {
    GraphRewriter rewriter(graph_);
    bool divided = false;
    for (uint32_t i = 0, nodes = static_cast<uint32_t>(graph_.nodes.size()); i < nodes; ++i) {
      std::vector<ValueRef> anchors;
      for (const ValueRef& input : graph_.nodes[i].inputs)
        if (is_read_once(input)) anchors.push_back(input);
      size_t left = anchors.size();
      for (const ValueRef& anchor : anchors)
        if (left > 1 && divide(rewriter, i, anchor)) {
          divided = true;
          --left;
        }
    }
    rewriter.finish();
    return divided;
  }

  /// A program of which others read both the float32 result and the same in 16 bits leaves rounding to a node
  /// behind it, if a convolution can then take it in.
  bool separate_casts() {
    GraphRewriter rewriter(graph_);
    bool separated = false;
    for (uint32_t i = 0, nodes = static_cast<uint32_t>(graph_.nodes.size()); i < nodes; ++i)
      separated |= separate_cast(rewriter, i);
    rewriter.finish();
    return separated;
  }

  /// Makes the program at node i part of a convolution that it reads.
  bool take_in(uint32_t i) {
    GraphNode& n = graph_.nodes[i];
    const auto program = std::dynamic_pointer_cast<const FusedOp>(n.op);
    if (!program || n.outputs.size() != 1) return false;
    InputSpecs specs;
    for (const ValueRef& input : n.inputs) specs.push_back(&graph_.spec(input));
    for (size_t k = 0; k < n.inputs.size(); ++k) {
      if (!is_read_once(n.inputs[k]) || !(specs[k]->shape == n.outputs[0].shape)) continue;
      if (auto taken = taken_by(n.inputs[k], program->program(), n.inputs, specs)) {
        take_in(n, k, program, std::move(*taken));
        return true;
      }
    }
    return false;
  }

 private:
  using Inputs = SmallVector<ValueRef, 2>;

  /// Whether the value is that of a convolution, for one reader.
  bool is_read_once(ValueRef v) const {
    return is_anchor(graph_.nodes[v.node], graph_.device) && readers_[v.node] == 1;
  }

  std::optional<TakenProgram> taken_by(ValueRef convolution, const Program& program, const Inputs& inputs,
                                       const InputSpecs& specs) const {
    const GraphNode& n = graph_.nodes[convolution.node];
    const auto k = static_cast<size_t>(std::ranges::find(inputs, convolution) - inputs.begin());
    for (const bool packs : {true, false}) {
      if (packs && !(keeps_ && made_of_leaves_[n.inputs[1].node])) continue;
      std::vector<bool> steps_by;
      for (const ValueRef& input : inputs)
        steps_by.push_back(!packs || (input.node < made_of_leaves_.size() && made_of_leaves_[input.node]));
      const bool channels_last = attribute<bool>(*n.op, "channels_last");
      auto channels = ChannelProgram::of(program, k, n.outputs[0], specs, steps_by,
                                         channels_last ? 0 : n.outputs[0].shape.rank() - 2);
      if (!channels || (!packs && channels->scales())) continue;
      const bool on_cpu = graph_.device == DeviceType::cpu;
      if (!on_cpu && (channels->casts || !channels->is_biased())) continue;
      // A training that diverges must show it.
      if (on_cpu && !inference_ && channels->hides_nan()) continue;
      return TakenProgram{std::move(*channels), packs};
    }
    return std::nullopt;
  }

  /// Makes two programs of that at node i: the first does what the convolution can take in.
  bool divide(GraphRewriter& rewriter, uint32_t i, ValueRef convolution) {
    const GraphNode& n = rewriter.node(i);
    const auto op = std::dynamic_pointer_cast<const FusedOp>(n.op);
    if (!op) return false;
    const Spec& output = graph_.spec(convolution);
    std::vector<bool> joins;
    for (const ValueRef& input : n.inputs)
      joins.push_back(rewriter.spec(input).shape.elements() <= output.shape[-1]);
    const auto at = static_cast<uint32_t>(std::ranges::find(n.inputs, convolution) - n.inputs.begin());
    const auto parts = cut_off_chain(op->program(), at, joins);
    if (!parts) return false;
    const Spec between_them{parts->first.program.instructions.back().dtype, output.shape};
    if (between_them.dtype != output.dtype && !is_half(output.dtype)) return false;
    const auto inputs_of = [&n](const ProgramPart& part) {
      Inputs inputs;
      for (const uint32_t input : part.inputs) inputs.push_back(n.inputs[input]);
      return inputs;
    };
    GraphNode first;
    first.inputs = inputs_of(parts->first);
    InputSpecs specs;
    for (const ValueRef& input : first.inputs) specs.push_back(&rewriter.spec(input));
    if (!taken_by(convolution, parts->first.program, first.inputs, specs)) return false;
    first.op = std::make_shared<FusedOp>(parts->first.program, Specs{between_them});
    first.outputs = {between_them};
    first.tag = n.tag;
    first.where = n.where;
    Inputs rest = inputs_of(parts->rest);
    Specs outputs = n.outputs;
    const ValueRef between{rewriter.add_before(i, std::move(first)), 0};
    GraphNode& behind = rewriter.node(i);
    std::ranges::replace(rest, convolution, between);
    behind.op = std::make_shared<FusedOp>(parts->rest.program, std::move(outputs));
    behind.inputs = std::move(rest);
    return true;
  }

  bool separate_cast(GraphRewriter& rewriter, uint32_t i) const {
    GraphNode& n = rewriter.node(i);
    const auto op = std::dynamic_pointer_cast<const FusedOp>(n.op);
    if (!op || n.outputs.size() != 2 || !(n.outputs[0].shape == n.outputs[1].shape)) return false;
    Program program = op->program();
    if (program.outputs[1] + 1 != program.instructions.size() || program.outputs[0] + 1 != program.outputs[1])
      return false;
    const Instruction last = program.instructions.back();
    if (!is_op(*last.op, "cast") || last.arguments[0].from != Argument::From::value ||
        last.arguments[0].index != program.outputs[0])
      return false;
    program.instructions.pop_back();
    program.outputs.pop_back();
    InputSpecs specs;
    for (const ValueRef& input : n.inputs) specs.push_back(&graph_.spec(input));
    if (std::ranges::none_of(n.inputs, [&](const ValueRef& input) {
          return is_read_once(input) && graph_.spec(input).shape == n.outputs[0].shape &&
                 taken_by(input, program, n.inputs, specs);
        }))
      return false;
    GraphNode cast;
    cast.op = last.op;
    cast.inputs = {{i, 0}};
    cast.outputs = {n.outputs[1]};
    cast.tag = n.tag;
    cast.where = n.where;
    n.outputs = {n.outputs[0]};
    n.op = std::make_shared<FusedOp>(std::move(program), n.outputs);
    rewriter.replace({i, 1}, {rewriter.add_after(i, std::move(cast)), 0});
    return true;
  }

  void take_in(GraphNode& n, size_t k, const std::shared_ptr<const FusedOp>& program,
               TakenProgram taken) const {
    const GraphNode& convolution = graph_.nodes[n.inputs[k].node];
    const Spec output = convolution.outputs[0];
    Inputs inputs = convolution.inputs;
    // Kernels that are packed once are rounded then.
    const GraphNode& kernels = graph_.nodes[inputs[1].node];
    if (taken.packs && has_convolution_primitive(output.dtype) && is_op(*kernels.op, "cast") &&
        graph_.spec(kernels.inputs[0]).dtype == DType::float32)
      inputs[1] = kernels.inputs[0];
    std::string key = taken.packs ? key_of(inputs[1], n, taken.channels) : std::string();
    for (size_t other = 0; other < n.inputs.size(); ++other)
      if (other != k) inputs.push_back(n.inputs[other]);
    n.op = std::make_shared<ConvolutionEpilogue>(
        Epilogue{convolution.op, convolution.inputs.size(), output, output.shape, program, k},
        std::move(taken.channels), std::move(key));
    n.inputs = std::move(inputs);
  }

  std::string key_of(ValueRef kernels, const GraphNode& program, const ChannelProgram& channels) const {
    std::string key = recipe(graph_, kernels);
    for (const ChannelProgram::Step& step : channels.steps)
      key += fmt::format("|{} {} {}", static_cast<int>(step.kind), step.number,
                         step.input ? recipe(graph_, program.inputs[*step.input]) : "");
    return key;
  }

  Graph& graph_;
  const std::vector<bool> made_of_leaves_;
  const bool inference_, keeps_;
  const std::vector<int> readers_;
};

}  // namespace

bool fuse_convolution(Graph& graph, const CompileOptions& options) {
  const auto anchors = [&](const GraphNode& n) { return is_anchor(n, graph.device); };
  if (std::ranges::none_of(graph.nodes, anchors)) return false;
  const bool keeps = graph.device == DeviceType::cpu && options.keeps_leaves(graph);
  bool changed = keeps && Fusion(graph, options.inference, keeps).divide_programs();
  changed |= graph.device == DeviceType::cpu && Fusion(graph, options.inference, keeps).separate_casts();
  Fusion fusion(graph, options.inference, keeps);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) changed |= fusion.take_in(i);
  if (changed) dead_nodes(graph);
  return changed;
}

}  // namespace espalier
