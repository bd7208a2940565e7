// What an optimizer keeps between steps.
#pragma once
#include <map>
#include <string>

#include "espalier/core/node.h"
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct OptimizerState {
  const uint64_t identity = Node::next_id();
  std::shared_ptr<const Rule> rule;
  CommonOptions common;
  std::map<std::string, double, std::less<>> settings;
  /// Settings as leaves, one for each dtype that was asked for, so that plans read what is set later.
  std::map<std::pair<std::string, DType>, Variable> setting_leaves;

  struct PerParameter {
    Variable parameter;  // held, so that its address stays its own
    std::vector<std::pair<std::string, Variable>> states;
  };
  std::map<const Node*, PerParameter> parameters;
  Variable schedule_step;  // how many updates there were; where there is a schedule

  const Variable& setting_leaf(std::string_view name, DType dtype);
  Variable leaf(const Variable& parameter, std::string_view name, const Spec& spec, double initial);
};

}  // namespace espalier::optim
