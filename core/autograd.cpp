#include "espalier/core/autograd.h"

#include <fmt/format.h>

#include <optional>
#include <span>

#include "espalier/core/backward_pass.h"
#include "espalier/core/deferred/waiting.h"
#include "espalier/core/gradient_of_constant.h"
#include "espalier/core/train_phase.h"

namespace espalier {

namespace {

void check_root(const Variable& root, std::string_view what) {
  if (!root.defined()) throw Error(fmt::format("{}: the Variable is undefined", what));
  if (!is_real(root.dtype()))
    throw TypeError(fmt::format("{}: only reals have gradients, this is {} of shape {}", what,
                                name(root.dtype()), root.shape().str()));
}

/// The nodes of the tree below `root` through which gradients reach those that `is_end` names. None of them
/// is older than the id `oldest`.
template <class Predicate>
NodeMap nodes_toward(Node* root, uint64_t oldest, Batches batches, const Predicate& is_end) {
  std::vector<Node*> nodes;
  TreeWalk walk(root);
  while (Node* node = walk.next()) {
    if (node->id < oldest) continue;
    nodes.push_back(node);
    for (const Edge& input : node->inputs) walk.enter(target_of(input, batches).node());
  }
  sort_by_age(nodes);
  NodeMap result;
  for (Node* node : nodes) {
    const bool made =
        is_end(*node) || (!node->stops_gradient &&
                          std::any_of(node->inputs.begin(), node->inputs.end(), [&](const Edge& input) {
                            return result.find(target_of(input, batches).node()) != NodeMap::none;
                          }));
    if (made) result.insert(node, 0);
  }
  return result;
}
NodeMap nodes_made_of(Node* root, const Node* x, Batches batches) {
  return nodes_toward(root, x->id, batches, [&](const Node& node) { return &node == x; });
}

/// Whether a gradient with respect to `x` is another one in inference.
bool passes_a_phase(Node* root, const Node* x) {
  if (!has_phases()) return false;
  const NodeMap path = nodes_made_of(root, x, Batches::pass_by);
  TreeWalk walk(root);
  while (Node* node = walk.next()) {
    if (path.find(node) == NodeMap::none) continue;
    if (chooses_by_phase(node->op())) return true;
    walk.enter_inputs(*node);
  }
  return false;
}

/// Adds the gradients of all leaves that are trained. Those of frozen parameters are not built, nor what only
/// they would need.
void add_trained(const Variable& root, GradientTable& table, Batches batches) {
  if (!root.node()->needs_gradient) return;
  if (trainable_version() == 0)  // nothing was ever frozen
    return void(BackwardPass(root, table, batches, [](const Node& node) { return node.needs_gradient; }));
  const NodeMap trained = nodes_toward(root.node(), 0, batches, is_trained);
  if (trained.find(root.node()) == NodeMap::none) return;
  BackwardPass(root, table, batches, [&](const Node& node) { return trained.find(&node) != NodeMap::none; });
}

/// Whether there are derivatives below `root`. That of a linear function may be made of constants alone.
bool has_derivatives(Node* root) {
  TreeWalk walk(root);
  while (Node* node = walk.next()) {
    if (node->tag == Tag::backward && !node->is_leaf()) return true;  // one that was cut is a constant
    for (const Edge& input : node->inputs) walk.enter(target_of(input, Batches::follow).node());
  }
  return false;
}

}  // namespace

namespace {

/// What is differentiated in place of a root that waits, or that a batch has computed.
Variable computed_root(const Variable& root) {
  if (root.node()->waits) compute_waiting(*root.node());
  if (!root.node()->batch) return root;
  const ValuesLater later;
  return computed_form(*root.node(), root.output());
}

}  // namespace

GradientRecord& differentiate(const Variable& root) {
  check_root(root, "backward");
  GradientRecord& record = record_of(*root.node());
  if (record.complete != trainable_version()) {
    const Variable computed = computed_root(root);
    const ComputeAtOnce at_once;
    add_trained(computed, record.gradients, Batches::follow);
    record.complete = trainable_version();
  }
  return record;
}

namespace {

std::vector<std::pair<Variable, Variable>> of_parameters(const GradientTable& table) {
  std::vector<std::pair<Variable, Variable>> result;
  table.for_each([&](Node* node, uint32_t output, const Edge& gradient) {
    if (is_parameter(node->op()) && is_trained(*node))
      result.emplace_back(Variable(node, output), gradient.variable());
  });
  std::sort(result.begin(), result.end(),
            [](const auto& a, const auto& b) { return a.first.node()->id < b.first.node()->id; });
  return result;
}

}  // namespace

std::vector<std::pair<Variable, Variable>> new_parameter_gradients(const Variable& root) {
  check_root(root, "get_executor");
  GradientTable table;
  add_trained(root, table, Batches::pass_by);
  return of_parameters(table);
}

std::vector<Variable> gradients_between(const Variable& y, const Variable& g, std::span<const Variable> ends,
                                        std::span<const Variable> between) {
  NodeMap path;
  for (const Variable& end : ends)
    if (path.find(end.node()) == NodeMap::none) path.insert(end.node(), 0);
  for (const Variable& v : between) {
    const Node& node = *v.node();
    if (!node.stops_gradient && std::ranges::any_of(node.inputs, [&](const Edge& input) {
          return path.find(input.node()) != NodeMap::none;
        }))
      path.insert(&node, 0);
  }
  std::vector<Variable> result(ends.size());
  if (path.find(y.node()) == NodeMap::none) return result;
  GradientTable table;
  const BackwardPass pass(
      y, table, Batches::pass_by, [&](const Node& node) { return path.find(&node) != NodeMap::none; }, ends,
      g);
  for (size_t i = 0; i < ends.size(); ++i)
    if (const Edge* found = table.find(ends[i].node(), ends[i].output())) result[i] = found->variable();
  return result;
}

std::vector<std::pair<Variable, Variable>> parameter_gradients(const Variable& root) {
  return of_parameters(differentiate(root).gradients);
}

namespace {

Variable zero_gradient(const Edge& of, const std::source_location& where) {
  const Variable x = of.variable();
  return broadcast_like(Variable(full({}, 0, x.dtype()).to(x.device()), where), x);
}

/// What plans of inference compute in place of a gradient that passes through what training computes. They
/// compute every value, so it passes by batches.
Variable gradient_in_inference(const Variable& root, const Variable& x, const std::source_location& where) {
  const InferenceGradients through_inference;
  const Edge of(x);
  GradientTable& table = record_of(*root.node()).in_inference;
  if (!table.find(of.node(), of.output())) {
    const NodeMap path = nodes_made_of(root.node(), of.node(), Batches::pass_by);
    const BackwardPass pass(
        root, table, Batches::pass_by, [&](const Node& node) { return path.find(&node) != NodeMap::none; },
        std::span(&x, 1));
  }
  const Edge* known = table.find(of.node(), of.output());
  return known ? known->variable() : zero_gradient(of, where);
}

}  // namespace

Variable Variable::gradient(const Variable& x, Where where) const {
  return located(where, [&]() -> Variable {
    check_root(*this, "gradient");
    if (!x.defined()) throw Error("gradient: the Variable to differentiate by is undefined");
    if (!is_real(x.dtype()))
      throw TypeError(fmt::format(
          "gradient: only reals have gradients, and the Variable to differentiate by is {} of shape {}",
          name(x.dtype()), x.shape().str()));
    GradientRecord& record = record_of(*node());
    const Variable root = computed_root(*this);
    const std::shared_ptr<const Batch> batch = x.node()->batch;
    const Edge of = target_of(Edge(x), Batches::follow);
    const ComputeAtOnce at_once;
    if (writes_inference_gradients()) return gradient_in_inference(*this, x, where);
    const Edge* known = record.gradients.find(of.node(), of.output());
    const Variable end = of.variable();
    std::optional<BackwardPass> pass;
    if (!known) {
      const NodeMap path = nodes_made_of(root.node(), of.node(), Batches::follow);
      const bool made_of_x = path.find(root.node()) != NodeMap::none;
      if (!made_of_x && !has_derivatives(root.node())) {
        const std::string text = fmt::format(
            "gradient: this Variable ({}, shape {}) is not made of the one asked for ({}, shape {})",
            node()->op().name(), shape().str(), x.node()->op().name(), x.shape().str());
        if (!node()->is_leaf()) throw Error(text);
        throw GradientOfConstant(text + "; what is computed under NoGrad is a constant");
      }
      if (made_of_x && is_trained(*x.node()) && record.complete != trainable_version())
        differentiate(*this);
      else if (made_of_x)
        pass.emplace(
            root, record.gradients, Batches::follow,
            [&](const Node& node) { return path.find(&node) != NodeMap::none; }, std::span(&end, 1));
      known = record.gradients.find(of.node(), of.output());
    }
    if (!known) {  // no path to `x` has a derivative
      const Variable zero = zero_gradient(of, where);
      GradientTable::Run run;
      run.push_back({of, of.node()->id, of.output(), Edge(zero), {}});
      record.gradients.add(std::move(run));
      known = record.gradients.find(of.node(), of.output());
    }
    Variable gradient = known->variable();
    if (batch) gradient = part_of_batch(*batch, *x.node(), x.output(), gradient);
    if (!in_inference_phase() && passes_a_phase(node(), x.node()))
      gradient = in_train_phase(
          gradient, [&] { return gradient_in_inference(*this, x, where); }, where);
    if (node()->lazy && node()->has_value())
      evaluate_at({gradient}, *node());  // of the step that this shows
    else if (!gradient.node()->lazy)
      ensure_value(*gradient.node());  // a live handle keeps it from here on
    return gradient;
  });
}

}  // namespace espalier
