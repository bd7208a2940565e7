// Control flow whose course is known when the tree is written: branches and loops are written out.
#include <fmt/format.h>

#include "espalier/nn/onnx/translate.h"

namespace espalier::onnx {

namespace {

Outputs variables_of(const std::vector<Value>& values) {
  Outputs list;
  for (const Value& value : values) list.push_back(value.variable);
  return list;
}

Outputs branch(FileNode& node) {
  const bool condition = node.number(0) != 0;
  node.ignore("then_branch");
  node.ignore("else_branch");
  return variables_of(node.run(node.graph(condition ? "then_branch" : "else_branch"), {}));
}

Value constant(const Tensor& tensor) { return {Variable(tensor), true}; }

/// A known number of steps, as long as the condition stays known and true. The body takes the number of the
/// step, the condition and the carried values, and gives the condition, the carried values and what is
/// collected.
Outputs loop(FileNode& node) {
  const pb::GraphProto& body = node.graph("body");
  const bool bounded = node.has(0);
  const int64_t count = bounded ? node.integer(0) : INT64_MAX;
  Value condition = node.has(1) ? constant(node.tensor(1)) : constant(tensor(int64_t{1}).to(boolean));
  std::vector<Value> carried;
  for (size_t i = 2; i < node.count(); ++i) carried.push_back(node.value(i));
  std::vector<std::vector<Variable>> collected;
  for (int64_t step = 0; step < count; ++step) {
    if (!condition.constant) node.refuse("its condition depends on inputs of the model");
    if (condition.variable.value().to(float64).item() == 0) break;
    node.check_steps(step + 1);
    std::vector<Value> inputs{constant(tensor(step)), condition};
    inputs.insert(inputs.end(), carried.begin(), carried.end());
    const std::vector<Value> outputs = node.run(body, inputs);
    if (outputs.size() < carried.size() + 1) node.fail("its body gives too few values");
    condition = outputs[0];
    carried.assign(outputs.begin() + 1, outputs.begin() + 1 + static_cast<int64_t>(carried.size()));
    collected.resize(outputs.size() - 1 - carried.size());
    for (size_t i = 0; i < collected.size(); ++i)
      collected[i].push_back(outputs[1 + carried.size() + i].variable);
  }
  Outputs results = variables_of(carried);
  for (const std::vector<Variable>& list : collected) results.push_back(stack(list, 0));
  if (results.size() < node.outputs()) node.refuse("a loop without a step collects nothing");
  return results;
}

/// Slices of the scanned inputs, one after the other, with carried states.
Outputs scan(FileNode& node) {
  const pb::GraphProto& body = node.graph("body");
  const auto scanned = static_cast<size_t>(node.integer("num_scan_inputs"));
  if (scanned < 1 || scanned > node.count()) node.fail("its num_scan_inputs is out of range");
  const size_t states = node.count() - scanned;
  const std::vector<int64_t> input_axes = node.integers("scan_input_axes", std::vector<int64_t>(scanned, 0)),
                             backwards =
                                 node.integers("scan_input_directions", std::vector<int64_t>(scanned, 0));
  const size_t results = node.outputs() < states ? 0 : node.outputs() - states;
  const std::vector<int64_t> output_axes =
                                 node.integers("scan_output_axes", std::vector<int64_t>(results, 0)),
                             prepended =
                                 node.integers("scan_output_directions", std::vector<int64_t>(results, 0));
  if (input_axes.size() != scanned || backwards.size() != scanned || output_axes.size() != results ||
      prepended.size() != results)
    node.fail("its axes or directions are those of other inputs");
  std::vector<Value> carried;
  for (size_t i = 0; i < states; ++i) carried.push_back(node.value(i));
  int64_t steps = -1;
  std::vector<int64_t> axes;
  for (size_t i = 0; i < scanned; ++i) {
    const Variable& x = node[states + i];
    axes.push_back(axis_of(node, x, input_axes[i]));
    if (is_open_axis(x, axes[i])) node.refuse("it scans an open axis");
    if (steps >= 0 && x.shape()[axes[i]] != steps) node.fail("its scanned axes differ in size");
    steps = x.shape()[axes[i]];
  }
  if (steps < 1) node.refuse("it has no steps");
  node.check_steps(steps);
  std::vector<std::vector<Variable>> collected(results);
  for (int64_t step = 0; step < steps; ++step) {
    std::vector<Value> inputs = carried;
    for (size_t i = 0; i < scanned; ++i) {
      const int64_t place = backwards[i] ? steps - 1 - step : step;
      inputs.push_back({squeeze(slice(node[states + i], axes[i], place, place + 1), axes[i]), false});
    }
    const std::vector<Value> outputs = node.run(body, inputs);
    if (outputs.size() != states + results) node.fail("its body gives another number of values");
    carried.assign(outputs.begin(), outputs.begin() + static_cast<int64_t>(states));
    for (size_t i = 0; i < results; ++i) {
      auto& list = collected[i];
      list.insert(prepended[i] ? list.begin() : list.end(), outputs[states + i].variable);
    }
  }
  Outputs all = variables_of(carried);
  for (size_t i = 0; i < results; ++i) all.push_back(stack(collected[i], output_axes[i]));
  return all;
}

}  // namespace

void add_control(Registry& all) {
  all.add("If", 1, branch);
  all.add("Loop", 1, loop);
  all.add("Scan", 9, scan);
}

}  // namespace espalier::onnx
