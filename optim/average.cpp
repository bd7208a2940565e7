#include "espalier/optim/average.h"

#include <fmt/format.h>

#include <optional>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"
#include "espalier/optim/state.h"

namespace espalier::optim {

namespace {

/// Reads the state of a handle.
struct StateOf : Optimizer {
  explicit StateOf(const Optimizer& optimizer) : Optimizer(optimizer) {}
  using Optimizer::shared_state;
};

bool averages_already(const OptimizerState& state) {
  if (state.averaging) return true;
  for (const Group& group : state.groups)
    if (averages_already(*StateOf(group.optimizer).shared_state())) return true;
  return false;
}

std::shared_ptr<OptimizerState> averaging_state(std::string_view name, const Averaging& averaging,
                                                const std::source_location& where) {
  SettingChecks(name, where)
      .check(averaging.start >= 0, "start", static_cast<double>(averaging.start))
      .check(averaging.every >= 1, "every", static_cast<double>(averaging.every));
  if (averages_already(*StateOf(averaging.inner).shared_state()))
    located(where, [&] {
      throw Error(fmt::format("{}: the optimizer {} keeps averages already", name, averaging.inner.name()));
    });
  auto state = std::make_shared<OptimizerState>();
  state->name = fmt::format("{}({})", name, averaging.inner.name());
  state->averaging = averaging;
  return state;
}

std::function<Variable(const Variable&)> ema_share(const EmaOptions& o) {
  return [o](const Variable& count) {
    Variable decay = full_like(count, o.decay);
    if (o.warm_up) decay = minimum(decay, count / (count + 9.0));
    return espalier::where(greater(count, 1.0), 1.0 - decay, 1.0);
  };
}

}  // namespace

Ema::Ema(const Optimizer& optimizer, const EmaOptions& o, std::source_location where)
    : Optimizer(averaging_state("Ema", {optimizer, ema_share(o), o.start, o.every}, where)) {
  SettingChecks("Ema", where).check(o.decay >= 0 && o.decay <= 1, "decay", o.decay);
}

Swa::Swa(const Optimizer& optimizer, const SwaOptions& o, std::source_location where)
    : Optimizer(averaging_state(
          "Swa", {optimizer, [](const Variable& count) { return 1.0 / count; }, o.start, o.every}, where)) {}

namespace {

/// None, if no update has been averaged.
std::optional<Tensor> known_average(const Optimizer& optimizer, const Variable& parameter) {
  Variable average, averaged;
  for (const auto& [name, leaf] : optimizer.state_of(parameter)) {
    if (name == "moving_average" || (name == "average" && !average.defined())) average = leaf;
    if (name == "averaged") averaged = leaf;
  }
  if (!average.defined() || (averaged.defined() && averaged.item() == 0)) return std::nullopt;
  return average.value().to(parameter.dtype());
}

}  // namespace

Tensor average_of(const Optimizer& optimizer, const Variable& parameter, std::source_location where) {
  return located(where, [&] {
    auto average = known_average(optimizer, parameter);
    if (!average)
      throw Error(fmt::format(
          "{} has no average of the parameter '{}' of shape {}: no update of it has been averaged",
          optimizer.name(), parameter.node()->op().name(), parameter.shape().str()));
    return std::move(*average);
  });
}

UseAverages::UseAverages(const Optimizer& optimizer, const ParameterList& parameters,
                         std::source_location where) {
  located(where, [&] {
    parameters.check("UseAverages: the list");
    std::vector<Tensor> averages;
    for (const Variable& p : parameters.parameters()) {
      if (!is_trained(*p.node()) && !known_average(optimizer, p)) continue;
      averages.push_back(average_of(optimizer, p, where));
      before_.emplace_back(p, p.value().clone());
    }
    for (size_t i = 0; i < averages.size(); ++i) set_value(before_[i].first, averages[i]);
  });
}

UseAverages::~UseAverages() {
  for (const auto& [parameter, value] : before_) set_value(parameter, value);
}

}  // namespace espalier::optim
