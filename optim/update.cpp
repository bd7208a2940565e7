#include "espalier/optim/update.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/autograd.h"
#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/tree.h"
#include "espalier/optim/parameter_list.h"

namespace espalier {

namespace optim {

namespace {

/// Why a tree whose parameters have no gradients cannot be trained.
std::string why_untrained(const Variable& root) {
  std::vector<const Node*> parameters;
  const Node* variable = nullptr;
  bool cut = build_context().no_grad;
  for (const Node* node : nodes_below(TreeWalk(root.node()))) {
    cut |= node->stops_gradient;
    if (is_parameter(node->op()))
      parameters.push_back(node);
    else if (is_trainable(node->op()))
      variable = node;
  }
  if (parameters.empty()) {
    std::string why = "there is no parameter in the tree to train";
    if (cut) why += "; what is written while a NoGrad lives does not know what it is made of";
    if (variable)
      why += fmt::format("; variable() ({}:{}) makes a leaf that is not trained, and parameter() one that is",
                         variable->where.file_name(), variable->where.line());
    return why;
  }
  if (std::none_of(parameters.begin(), parameters.end(), [](const Node* p) { return is_trained(*p); }))
    return "all parameters in the tree are frozen; trainable(true) releases them";
  const Node& first = *parameters.front();
  return fmt::format(
      "no gradient reaches the parameters in the tree, such as '{}' of shape {} ({}:{}): what is made of "
      "them "
      "has no derivative, as sign() and comparisons, or passes none, behind stop_gradient() or NoGrad",
      first.op().name(), first.outputs[0].spec.shape.str(), first.where.file_name(), first.where.line());
}

}  // namespace

ParameterGradients trained_gradients(const Variable& root, ParameterGradients gradients,
                                     const Optimizer& optimizer, std::string_view user) {
  if (gradients.empty()) throw Error(fmt::format("{}: {}", user, why_untrained(root)));
  std::erase_if(gradients, [&](const auto& pair) { return !optimizer.updates(pair.first); });
  if (gradients.empty())
    throw Error(
        fmt::format("{}: none of the parameters that the tree trains is in a group of the optimizer, {}",
                    user, optimizer.name()));
  return gradients;
}

namespace {

void update(const Variable& root, const Optimizer& optimizer, const ParameterList* only) {
  (void)root.shape();  // throws if it is undefined
  Node& node = *root.node();
  if (node.lazy && !node.has_value()) ensure_value(node);
  if (node.waits) ensure_value(node);
  const ComputeAtOnce at_once;
  ParameterGradients gradients = trained_gradients(root, parameter_gradients(root), optimizer, "update");
  if (only) {
    only->check("update: the list");
    std::erase_if(gradients, [&](const auto& pair) { return !only->contains(pair.first); });
    const bool frozen =
        std::ranges::any_of(only->parameters(), [](const Variable& p) { return !is_trained(*p.node()); });
    if (gradients.empty())
      throw Error(
          fmt::format("update: none of the parameters given is one that the tree, and the optimizer, "
                      "train{}",
                      frozen ? "; some are frozen (set_trainable)" : ""));
  }
  std::vector<const Node*> parameters;
  for (const auto& [parameter, gradient] : gradients) parameters.push_back(parameter.node());
  auto& updates = node.record->updates;
  auto known = std::find_if(updates.begin(), updates.end(), [&](const GradientRecord::Update& update) {
    return update.optimizer == optimizer.identity() && update.parameters == parameters;
  });
  if (known == updates.end()) {
    GradientRecord::Update fresh{optimizer.identity(), std::move(parameters), {}};
    for (const Variable& assignment : optimizer.build(gradients))
      fresh.assignments.push_back(Edge(assignment));
    known = updates.insert(updates.end(), std::move(fresh));
  }
  run_update(node, *known);
}

}  // namespace

}  // namespace optim

const Variable& Variable::update(const optim::Optimizer& optimizer, Where where) const {
  located(where, [&] { optim::update(*this, optimizer, nullptr); });
  return *this;
}

const Variable& Variable::update(const optim::Optimizer& optimizer, const optim::ParameterList& parameters,
                                 Where where) const {
  located(where, [&] { optim::update(*this, optimizer, &parameters); });
  return *this;
}

}  // namespace espalier
