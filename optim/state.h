// The state of an optimizer.
#pragma once
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <tuple>

#include "espalier/core/node.h"
#include "espalier/optim/groups.h"
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

/// How an optimizer averages the values that another gives to parameters.
struct Averaging {
  Optimizer inner;
  /// The share of the new value in the next average, given the number of values in that, a scalar.
  std::function<Variable(const Variable& count)> share;
  int64_t start = 0;
  int64_t every = 1;
};

/// Whether a state belongs to the averages and not to the optimizer whose values are averaged.
inline bool is_average_state(std::string_view name) {
  return name == "moving_average" || name == "averaged" || name == "average_step";
}

/// Whether a setting, of a group or not, can have that value: β₁ is a share of a moving average.
inline bool is_valid_setting(std::string_view name, double value) {
  return std::isfinite(value) && value >= 0 && (value < 1 || !name.ends_with("beta1"));
}

struct OptimizerState {
  const uint64_t identity = Node::next_id();
  std::shared_ptr<const UpdateRule> rule;  ///< null for Groups and averages, which have the next three
  std::string name;
  std::vector<Group> groups;
  std::optional<Averaging> averaging;
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

  /// The schedules that are not constant, by the setting.
  std::map<std::string_view, const Schedule*> schedules() const;
  /// The group of a setting such as "1.lr", whose own name is left in `setting`. Throws Error.
  const Group& group_of_setting(std::string_view& setting) const;
  /// Null if no group has the parameter.
  const Group* group_of(const Variable& parameter) const;

  const Variable& setting_leaf(std::string_view name, DType dtype, Device device);
  Variable leaf(const Variable& parameter, std::string_view name, const Spec& spec, double initial);
};

}  // namespace espalier::optim
