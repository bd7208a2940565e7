// The state of an optimizer.
#pragma once
#include <map>
#include <string>
#include <tuple>

#include "espalier/core/node.h"
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct OptimizerState {
  const uint64_t identity = Node::next_id();
  std::shared_ptr<const UpdateRule> rule;
  CommonOptions common;
  std::map<std::string, double, std::less<>> settings;
  /// Settings as leaves, one for each dtype and device in use, so that plans read later changes.
  std::map<std::tuple<std::string, DType, Device>, Variable> setting_leaves;

  struct PerParameter {
    Variable parameter;  // keeps the node alive: its address is the key
    std::vector<std::pair<std::string, Variable>> states;
  };
  std::map<const Node*, PerParameter> parameters;
  /// The number of updates, if there is a schedule. On the CPU, where user-defined functions run.
  Variable schedule_step;

  const Variable& setting_leaf(std::string_view name, DType dtype, Device device);
  Variable leaf(const Variable& parameter, std::string_view name, const Spec& spec, double initial);
};

}  // namespace espalier::optim
