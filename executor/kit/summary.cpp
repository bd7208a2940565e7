#include "espalier/executor/kit/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <ostream>
#include <set>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/tree.h"
#include "espalier/nn/layer_state.h"
#include "espalier/nn/layer_trace.h"
#include "espalier/nn/mode_scope.h"

namespace espalier {

namespace {

using Paths = std::map<const nn::ModuleState*, std::string>;

int64_t output_bytes_of(const Variable& v) { return v.node()->outputs[v.output()].spec.bytes(); }

/// Counts a layer's own parameters and buffers, and those of the module that it stands for.
void add_numbers(LayerSummary& layer, const nn::ModuleState& module) {
  for (const auto& part : module.parts()) {
    if (part.child && part.name.empty()) add_numbers(layer, *part.child);
    if (part.child || !part.slot.value.defined()) continue;
    if (!part.slot.buffer) layer.parameters += part.slot.value.shape().elements();
    layer.bytes += output_bytes_of(part.slot.value);
  }
}

/// The multiply-adds of the products below `output` in nodes that are newer than `first`.
int64_t multiply_adds_since(const Variable& output, uint64_t first) {
  double flops = 0;
  TreeWalk walk(output.node());
  while (Node* node = walk.next()) {
    if (node->id < first || node->inputs.empty()) continue;
    walk.enter_inputs(*node);
    NodeWork work;
    for (const Edge& input : node->inputs) work.inputs.push_back(&input.spec());
    std::vector<Spec> outputs;
    for (const Output& o : node->outputs) outputs.push_back(o.spec);
    work.outputs = outputs;
    flops += node->op().cost(work).product;
  }
  return static_cast<int64_t>(flops / 2);
}

LayerSummary summary_of(const nn::LayerTrace::Call& call, const Paths& paths, bool again) {
  LayerSummary layer;
  if (const auto path = paths.find(call.layer); path != paths.end()) layer.path = path->second;
  const bool named = call.layer->kind() != "layer";
  layer.kind = named ? call.layer->kind() : call.output.node()->op().name();
  layer.output = call.output.shape();
  layer.multiply_adds = multiply_adds_since(call.output, call.first_node);
  layer.bytes = output_bytes_of(call.output);
  if (!again) add_numbers(layer, *call.layer);
  return layer;
}

std::string grouped_digits(int64_t number) {
  std::string digits = fmt::format("{}", number);
  for (size_t at = digits.size(); at > 3; at -= 3) digits.insert(at - 3, ",");
  return digits;
}

}  // namespace

ModuleSummary internal::summarize(const nn::Module& module, const NetCall& net,
                                  const std::vector<Spec>& inputs, const std::source_location& where) {
  const CallScope scope(where);
  return located(*build_context().where, [&] {
    for (const Spec& input : inputs)
      for (size_t axis = 0; axis < input.shape.rank(); ++axis)
        if (input.shape.dims()[axis] == -1)
          throw UnsupportedError(fmt::format(
              "summary: axis {} of {} is open, and the figures depend on its size; write a number{}", axis,
              input.shape.str(), axis == 0 ? ": 1 for the figures of one row" : ""));
    const nn::ModeScope inference(module, false);
    if (!net.takes(inputs.size()))
      throw Error(fmt::format("summary: the net is not called with {} Variables", inputs.size()));
    std::vector<Variable> columns;
    ModuleSummary summary;
    for (const Spec& spec : inputs) {
      const std::string name = inputs.size() == 1 ? "input" : fmt::format("input {}", columns.size());
      columns.push_back(placeholder(name, spec.shape, spec.dtype, where));
      summary.inputs.push_back(spec.shape);
    }
    summary.input = summary.inputs.front();
    nn::LayerTrace trace;
    const uint64_t first = Node::next_id();
    const Variable y = net.call(columns);
    summary.output = y.shape();
    summary.multiply_adds = multiply_adds_since(y, first);
    Paths paths;
    for (const auto& [path, part] : module.state()->modules()) paths.emplace(part.get(), path);
    std::set<const nn::LayerState*> seen;
    for (const nn::LayerTrace::Call& made : trace.calls()) {
      if (made.contains || !made.output.defined()) continue;
      summary.layers.push_back(summary_of(made, paths, !seen.insert(made.layer).second));
      summary.output_bytes += output_bytes_of(made.output);
    }
    for (const auto& [path, parameter] : module.parameters()) {
      summary.parameters += parameter.shape().elements();
      if (!parameter.node()->frozen) summary.trained += parameter.shape().elements();
      summary.parameter_bytes += output_bytes_of(parameter);
    }
    for (const auto& [path, buffer] : module.buffers()) {
      summary.buffers += buffer.shape().elements();
      summary.parameter_bytes += output_bytes_of(buffer);
    }
    return summary;
  });
}

std::ostream& operator<<(std::ostream& out, const ModuleSummary& summary) {
  std::vector<std::array<std::string, 6>> rows{
      {"layer", "kind", "output", "parameters", "multiply-adds", "bytes"}};
  for (const LayerSummary& layer : summary.layers)
    rows.push_back({layer.path, layer.kind, layer.output.str(), grouped_digits(layer.parameters),
                    grouped_digits(layer.multiply_adds), grouped_digits(layer.bytes)});
  size_t widths[6] = {};
  for (const auto& row : rows)
    for (size_t i = 0; i < 6; ++i) widths[i] = std::max(widths[i], row[i].size());
  const std::string rule(widths[0] + widths[1] + widths[2] + widths[3] + widths[4] + widths[5] + 10, '-');
  for (size_t r = 0; r < rows.size(); ++r) {
    const auto& row = rows[r];
    out << fmt::format("{:<{}}  {:<{}}  {:<{}}  {:>{}}  {:>{}}  {:>{}}\n", row[0], widths[0], row[1],
                       widths[1], row[2], widths[2], row[3], widths[3], row[4], widths[4], row[5], widths[5]);
    if (r == 0) out << rule << '\n';
  }
  std::string inputs;
  for (const Shape& input : summary.inputs) inputs += (inputs.empty() ? "" : ", ") + input.str();
  return out << rule << '\n'
             << fmt::format(
                    "input {}, output {}\n{} parameters, {} of them trained; {} numbers in buffers\n"
                    "{} multiply-adds; {} bytes in parameters and buffers, {} in outputs\n",
                    inputs, summary.output.str(), grouped_digits(summary.parameters),
                    grouped_digits(summary.trained), grouped_digits(summary.buffers),
                    grouped_digits(summary.multiply_adds), grouped_digits(summary.parameter_bytes),
                    grouped_digits(summary.output_bytes));
}

}  // namespace espalier
