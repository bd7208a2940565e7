#include "espalier/optim/groups.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "espalier/core/error.h"
#include "espalier/optim/state.h"

namespace espalier::optim {

bool ParameterList::contains(const Variable& parameter) const {
  return std::any_of(parameters_.begin(), parameters_.end(),
                     [&](const Variable& known) { return known.node() == parameter.node(); });
}

void ParameterList::check(std::string_view user) const {
  if (empty())
    throw Error(
        fmt::format("{} has no parameters; a layer that has not learned its input width has none yet: write "
                    "the tree first, "
                    "or give the width, as in Dense(in, out)",
                    user));
  for (const Variable& parameter : parameters_)
    if (!parameter.defined() || !is_parameter(parameter.node()->op()))
      throw Error(fmt::format(
          "{} has a Variable that is {}, not a parameter", user,
          parameter.defined() ? fmt::format("a '{}'", parameter.node()->op().name()) : "undefined"));
}

namespace {

void check_groups(const std::vector<Group>& groups) {
  if (groups.empty()) throw Error("Groups: there must be at least one group");
  std::map<const Node*, size_t> group_of;
  std::set<uint64_t> optimizers;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto& [list, optimizer, options] = groups[i];
    list.check(fmt::format("Groups: group {}", i));
    for (const auto& [option, value] : {std::pair("gradient_scale", options.gradient_scale),
                                        std::pair("l1", options.l1), std::pair("l2", options.l2)})
      if (!std::isfinite(value) || value < 0)
        throw Error(fmt::format("Groups: {} of group {} cannot be {}", option, i, value));
    for (const Variable& p : list.parameters()) {
      const auto [known, is_first] = group_of.emplace(p.node(), i);
      if (!is_first)
        throw Error(fmt::format("Groups: the parameter '{}' of shape {} is in group {} and in group {}",
                                p.node()->op().name(), p.shape().str(), known->second, i));
    }
    if (!optimizers.insert(optimizer.identity()).second)
      throw Error(
          fmt::format("Groups: group {} has the {} of another group; make it one group, or give it an "
                      "optimizer of its own",
                      i, optimizer.name()));
  }
}

std::shared_ptr<OptimizerState> state_of_groups(const std::vector<Group>& groups,
                                                const GroupsOptions& options,
                                                const std::source_location& where) {
  check_groups(groups);
  for (const auto& [option, value] :
       {std::pair("clip_norm", options.clip_norm), std::pair("clip_value", options.clip_value)})
    check_setting(std::isfinite(value) && value >= 0, "Groups", option, value, where);
  auto state = std::make_shared<OptimizerState>();
  state->common = {.clip_norm = options.clip_norm, .clip_value = options.clip_value};
  std::vector<std::string_view> names;
  for (const Group& group : groups) {
    state->groups.push_back(group);
    names.push_back(group.optimizer.name());
  }
  state->name = fmt::format("Groups({})", fmt::join(names, ", "));
  return state;
}

}  // namespace

Groups::Groups(const std::vector<Group>& groups, const GroupsOptions& options, std::source_location where)
    : Optimizer(located(where, [&] { return state_of_groups(groups, options, where); })) {}

const Group& OptimizerState::group_of_setting(std::string_view& setting) const {
  for (size_t i = 0; i < groups.size(); ++i) {
    const std::string prefix = fmt::format("{}.", i);
    if (!setting.starts_with(prefix)) continue;
    setting.remove_prefix(prefix.size());
    return groups[i];
  }
  const size_t dot = setting.find('.');
  if (dot != setting.npos &&
      std::ranges::all_of(setting.substr(0, dot), [](char c) { return c >= '0' && c <= '9'; }))
    throw Error(
        fmt::format("{} has no setting '{}': its groups are 0 to {}", name, setting, groups.size() - 1));
  throw Error(
      fmt::format("{} has no setting '{}': name its group, as in '0.{}', or ask the group's optimizer", name,
                  setting, setting));
}

const Group* OptimizerState::group_of(const Variable& parameter) const {
  for (const Group& group : groups)
    if (group.parameters.contains(parameter)) return &group;
  return nullptr;
}

}  // namespace espalier::optim
