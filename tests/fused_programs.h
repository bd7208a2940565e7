// Fused programs from plans, with tensors to run them on, for tests of code generation.
#pragma once
#include <functional>
#include <memory>

#include "espalier/core/node.h"
#include "espalier/executor/fused/codegen/fused_source.h"
#include "espalier/executor/fused/fused_op.h"
#include "espalier/executor/passes/clusters.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace espalier::testing {

struct FusedCase {
  std::shared_ptr<const Op> op;
  std::vector<Tensor> inputs;  ///< behind the layouts that the plan has for them
  Specs outputs;
  const Program& program() const { return dynamic_cast<const FusedOp&>(*op).program(); }
};

inline FusedTensors met(const FusedCase& c) {
  FusedTensors tensors;
  for (const Tensor& in : c.inputs) tensors.inputs.push_back({in.dtype(), in.layout()});
  for (const Spec& out : c.outputs) tensors.outputs.push_back({out.dtype, Layout(out.shape)});
  return tensors;
}

/// The kernels into which the tree of these results is fused.
inline std::vector<FusedCase> fused_cases(const std::vector<Variable>& results) {
  Graph graph = freeze(results, {}, {}, false);
  simplify(graph);
  common_subexpressions(graph);
  fuse_pointwise(graph);
  std::vector<FusedCase> cases;
  for (const GraphNode& n : graph.nodes) {
    if (!dynamic_cast<const FusedOp*>(n.op.get())) continue;
    FusedCase c{n.op, {}, n.outputs};
    for (const ValueRef& input : n.inputs) {
      const ViewSource seen = resolve_views(graph, input);
      const Spec& spec = graph.spec(seen.value);
      // Single numbers are often reciprocals of counts, so they are small.
      const double largest = spec.shape.elements() == 1 ? 2e-4 : 1.5;
      const Tensor base = numbers(spec.shape, -largest, largest, c.inputs.size()).to(spec.dtype);
      c.inputs.emplace_back(base.storage(), seen.layout, spec.dtype);
    }
    cases.push_back(std::move(c));
  }
  return cases;
}

/// Trees that plans compile to kernels of every form, over leaves of one element type.
inline std::vector<Variable> trees_to_fuse(DType dtype, const std::vector<int64_t>& row_lengths) {
  uint64_t which = 0;
  const auto leaf = [&](const Shape& shape) {
    ++which;
    return parameter(numbers(shape, -1.5, 1.5, which).to(dtype), "p" + std::to_string(which));
  };
  const auto with_gradients = [](const Variable& y, const std::vector<Variable>& of) {
    const Variable loss = sum(square(y));
    std::vector<Variable> all{loss};
    for (const Variable& x : of) all.push_back(loss.gradient(x));
    return all;
  };
  std::vector<Variable> trees;
  const auto add = [&](const std::vector<Variable>& more) {
    trees.insert(trees.end(), more.begin(), more.end());
  };
  const Variable a = leaf({33, 20}), b = leaf({20}), c = leaf({33, 1});
  add(with_gradients(tanh(a * b + c) * sigmoid(a), {a, b, c}));
  for (const int64_t width : row_lengths) {
    const Variable x = leaf({9, width}), scale = leaf({width}), shift = leaf({width});
    add(with_gradients(layer_norm(x, scale, shift), {x, scale, shift}));
    add(with_gradients(softmax(x * 0.5), {x}));
    add(with_gradients(log_softmax(x) * scale, {x, scale}));
    add({max(tanh(x), -1, true) * x, x - max(x * 2.0, -1, true)});
  }
  const Variable scores = leaf({3, 4, 6, 40}), mask = leaf({6, 40});
  add(with_gradients(softmax(scores * 0.125 + mask), {scores, mask}));
  const Variable wide = leaf({8, 33, 72}), turned = leaf({72, 33}), column = leaf({33, 1}),
                 plane = leaf({8, 1, 1});
  add(with_gradients(tanh(wide * transpose(turned) + column) * plane - slice(leaf({8, 33, 100}), 2, 10, 82),
                     {wide, turned, column, plane}));
  add({sum(tanh(leaf({1000, 3})) * 2.0, 0), mean(tanh(leaf({3, 5000})) * 2.0, 0),
       mean(tanh(leaf({70001})) * 2.0)});
  add({cast(greater(wide * 2.0, transpose(turned)), dtype) + 1.0,
       where(greater(a, b), a, c) / (square(b) + 1.0)});
  add({cast(floor(cast(a * 3.0, int32)), dtype) * 0.5, exp(leaf({1}) * 2.0) + 1.0, leaf({}) * 2.0 + 1.0});
  const Variable rows = leaf({4, 5, 6, 8});
  add({sum(softmax(rows) * 2.0, Axes({0, 1})), sum(softmax(rows) * rows, Axes({0, 1, 2})),
       mean(softmax(rows) * 3.0, 0)});
  // Rows of two lengths, an operand under two shapes, and columns whose tiles end within a period.
  const Variable x = leaf({24, 40}), factor = leaf({2, 1}), flat = leaf({24});
  add(with_gradients(softmax(reshape(softmax(x) * 2.0, {12, 80})) * 0.5, {x}));
  add(with_gradients(exp(reshape(exp(reshape(flat, {2, 12}) * factor * 0.5) * 0.25, {4, 2, 3}) * factor),
                     {flat, factor}));
  add({sum(softmax(leaf({10, 7, 50}) * 2.0), 0), sum(softmax(leaf({50, 31, 40})) * 2.0, 0),
       mean(tanh(leaf({700, 7})) * 2.0, 0)});
  const Variable weights = leaf({33}), more = tanh(a) * reshape(weights, {33, 1});
  add(with_gradients(more * sum(more, -1, true) + slice(sum(more, 0), 0, 3, 4), {a, weights}));
  // Integers that a double cannot represent.
  const Variable counts = state(numbers({6, 40}, -9, 9, 77).to(int64), "counts");
  constexpr int64_t big = (int64_t{1} << 53) + 1;
  add({(counts + big) * counts - counts * big, maximum(counts * int64_t{3}, int64_t{-4}) + counts});
  return trees;
}

}  // namespace espalier::testing
