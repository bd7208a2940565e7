#include "espalier/nn/onnx/stand_in.h"

#include <map>
#include <optional>

#include "espalier/core/error.h"
#include "espalier/core/feed.h"
#include "espalier/core/node.h"
#include "espalier/core/open_sizes.h"
#include "espalier/core/tree.h"
#include "espalier/nn/onnx/size.h"

namespace espalier::onnx {

namespace {

/// The shape of `x` with twice as many rows in each batch. None if the tree needs the number that there is.
std::optional<Shape> shape_of_more_rows(const Variable& x) {
  std::map<const Node*, Specs> specs;
  try {
    for (const Node* node : nodes_below(TreeWalk(x.node()))) {
      Specs& own = specs[node];
      if (node->is_leaf() || node->op().feed() || !node->lazy) {
        for (const Output& output : node->outputs) own.push_back(output.spec);
        if (node->op().feed() && own[0].shape.rank() > 0) own[0].shape.dims()[0] *= 2;
        continue;
      }
      InputSpecs inputs;
      for (const Edge& input : node->inputs) inputs.push_back(&specs.at(input.node())[input.output()]);
      own = node->op().infer(inputs);
    }
  } catch (const Error&) {
    return std::nullopt;
  }
  return specs.at(x.node())[x.output()].shape;
}

}  // namespace

std::set<size_t> axes_of_batch(const Variable& x) {
  std::set<size_t> axes;
  if (!x.node()->lazy) return axes;
  const std::optional<Shape> more = shape_of_more_rows(x);
  for (size_t axis = 0; more && axis < x.rank(); ++axis)
    if (more->dims()[axis] != x.shape().dims()[axis]) axes.insert(axis);
  return axes;
}

Variable StandIns::add(const std::string& name, const Variable& x, const std::set<size_t>& open) {
  Dims sizes = x.shape().dims();
  for (size_t axis = 0; axis < sizes.size(); ++axis)
    if (open.contains(axis) || sizes[axis] == nominal_size) sizes[axis] = -1;
  Variable stand_in = placeholder(name, Shape(sizes), x.dtype());
  if (x.device() != stand_in.device()) stand_in = stand_in.to(x.device());
  pairs_.emplace_back(stand_in, x);
  return stand_in;
}

std::vector<Variable> StandIns::replaced(const std::vector<Variable>& roots) const {
  if (pairs_.empty()) return roots;
  using Key = std::pair<const Node*, uint32_t>;
  const std::vector<Node*> tree = nodes_below(TreeWalk(roots));
  check_open_sizes(tree, "a file whose batch follows the feed (LoadOptions::sizes gives an axis a size)");
  std::map<Key, Variable> again;
  for (const auto& [stand_in, x] : pairs_) again.emplace(Key{stand_in.node(), stand_in.output()}, x);
  const auto now = [&](const Variable& v) {
    const auto known = again.find({v.node(), v.output()});
    return known == again.end() ? v : known->second;
  };
  for (const Node* node : tree) {
    if (again.contains({node, 0})) continue;
    std::vector<Variable> inputs;
    bool changed = false;
    for (const Edge& input : node->inputs) {
      inputs.push_back(now(input.variable()));
      changed |= inputs.back().node() != input.node();
    }
    if (!changed) continue;
    std::vector<const Variable*> operands;
    for (const Variable& input : inputs) operands.push_back(&input);
    BuildContext context = build_context();
    context.no_grad |= node->stops_gradient;
    const BuildScope scope(context);
    const Variable first = apply(node->op_, operands, node->where);
    for (uint32_t k = 0; k < node->outputs.size(); ++k)
      again.emplace(Key{node, k}, Variable(first.node(), k));
  }
  std::vector<Variable> result;
  for (const Variable& root : roots) result.push_back(now(root));
  return result;
}

}  // namespace espalier::onnx
