#include "espalier/optim/optimizer.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/op_registry.h"
#include "espalier/ops/indexing/rows.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/assign.h"
#include "espalier/optim/state.h"

namespace espalier {

namespace {

void check_assigned(const Spec& leaf, const Spec& value) {
  if (leaf == value) return;
  throw ShapeError(fmt::format("assign: a leaf of {} {} cannot be assigned a value of {} {}",
                               name(leaf.dtype), leaf.shape.str(), name(value.dtype), value.shape.str()));
}

/// Assigns a value to a leaf. It has no kernel: evaluators write the leaf after computing all expressions.
struct Assign : Op {
  Assign() : Op({.effect = Effect::writes_leaf, .reads = InputSet::only(1)}) {}
  std::string_view name() const override { return "assign"; }
  Specs infer(const InputSpecs& in) const override {
    check_assigned(*in[0], *in[1]);
    return {*in[0]};
  }
};

}  // namespace

void add_assign_op(OpRegistry& ops) { ops.add<Assign>(2); }

namespace optim {

Variable OptimizerState::leaf(const Variable& parameter, std::string_view name, const Spec& spec,
                              double initial) {
  PerParameter& own = parameters[parameter.node()];
  if (!own.parameter.defined()) own.parameter = parameter;
  const Device device = parameter.device();
  for (const auto& [known, variable] : own.states)
    if (known == name) {
      if (variable.device() != device) assign(*variable.node(), variable.value().to(device));
      return variable;
    }
  own.states.emplace_back(name, espalier::state(full(spec.shape, initial, spec.dtype).to(device), name));
  return own.states.back().second;
}

std::map<std::string_view, const Schedule*> OptimizerState::schedules() const {
  std::map<std::string_view, const Schedule*> list;
  if (!common.schedule.is_constant()) list.emplace("lr", &common.schedule);
  for (const auto& [name, schedule] : common.schedules)
    if (!schedule.is_constant()) list.emplace(name, &schedule);
  return list;
}

const Variable& OptimizerState::setting_leaf(std::string_view name, DType dtype, Device device) {
  const auto value = settings.find(name);
  if (value == settings.end()) throw Error(fmt::format("{} has no setting '{}'", rule->name(), name));
  Variable& leaf = setting_leaves[{std::string(name), dtype, device}];
  if (!leaf.defined()) leaf = espalier::state(full({}, value->second, dtype).to(device), name);
  return leaf;
}

Variable ParameterUpdate::setting(std::string_view name) const {
  if (const auto known = scheduled_.find(name); known != scheduled_.end()) return known->second;
  const CallScope scope(leaf_.node()->where);
  return state_.setting_leaf(name, parameter_.dtype(), parameter_.device());
}

ParameterUpdate::ParameterUpdate(Variable leaf, Variable gradient, Variable rows, OptimizerState& state,
                                 ScheduledSettings scheduled, const GroupOptions& group)
    : leaf_(std::move(leaf)),
      gradient_(std::move(gradient)),
      rows_(std::move(rows)),
      parameter_(rows_.defined() ? take_rows(leaf_, rows_) : leaf_),
      state_(state),
      scheduled_(std::move(scheduled)) {
  if (is_half(parameter_.dtype())) parameter_ = cast(parameter_, DType::float32);
  if (group.l2 > 0) gradient_ = gradient_ + parameter_ * group.l2;
  if (group.l1 > 0) gradient_ = gradient_ + sign(parameter_) * group.l1;
}

Variable ParameterUpdate::state(std::string_view name, double initial) {
  const CallScope scope(leaf_.node()->where);
  const Shape shape = state_.rule->state_shape(name, leaf_.shape());
  const Variable leaf = state_.leaf(leaf_, name, {parameter_.dtype(), shape}, initial);
  if (!rows_.defined() || !(shape == leaf_.shape())) return leaf;
  taken_.emplace_back(take_rows(leaf, rows_), leaf);
  return taken_.back().first;
}

Variable ParameterUpdate::scalar_state(std::string_view name, double initial) {
  const CallScope scope(leaf_.node()->where);
  return state_.leaf(leaf_, name, {parameter_.dtype(), Shape()}, initial);
}

void ParameterUpdate::assign(const Variable& leaf, const Variable& value) {
  Variable target = leaf;
  bool whole = true;
  const auto stands_for = [&](const Variable& seen, const Variable& known) {
    if (!leaf.defined() || leaf.node() != seen.node()) return;
    target = known;
    whole = !rows_.defined();
  };
  stands_for(parameter_, leaf_);
  for (const auto& [seen, known] : taken_) stands_for(seen, known);
  if (!target.defined() || !target.node()->is_leaf() || !value.defined())
    throw Error(
        fmt::format("{}: assign() takes a leaf and its next value, both defined", state_.rule->name()));
  const CallScope scope(value.node()->where);
  located(value.node()->where, [&] {
    const bool narrows = is_half(target.dtype()) && value.dtype() == DType::float32;
    const Variable next = narrows ? cast(value, target.dtype()) : value;
    const Variable written = whole ? next : put_rows(target, rows_, next);
    check_assigned({target.dtype(), target.shape()}, {written.dtype(), written.shape()});
    assignments_.emplace_back(target, written);
  });
}

Optimizer::Optimizer(std::shared_ptr<const UpdateRule> rule,
                     std::vector<std::pair<std::string_view, double>> settings, const CommonOptions& common,
                     std::source_location where)
    : state_(std::make_shared<OptimizerState>()) {
  if (!rule) located(where, [] { throw Error("Optimizer: the rule is null"); });
  state_->rule = std::move(rule);
  state_->common = common;
  for (const auto& [name, value] : settings) state_->settings.emplace(name, value);
  for (const auto& [name, value] :
       {std::pair("clip_norm", common.clip_norm), std::pair("clip_value", common.clip_value)})
    check_setting(std::isfinite(value) && value >= 0, this->name(), name, value, where);
  for (const auto& [name, schedule] : common.schedules) (void)setting(name, where);
  if (!common.schedule.is_constant()) {
    (void)setting("lr", where);
    if (common.schedules.contains("lr"))
      located(where, [&] { throw Error(fmt::format("{}: 'lr' has two schedules", this->name())); });
  }
  if (state_->schedules().empty()) return;
  state_->schedule_step = espalier::state(full({}, 0, DType::float64), "schedule_step");
}

uint64_t Optimizer::identity() const { return state_->identity; }

std::string_view Optimizer::name() const {
  return state_->rule ? state_->rule->name() : std::string_view(state_->name);
}

double Optimizer::setting(std::string_view name, std::source_location where) const {
  return located(where, [&] {
    if (state_->averaging) return state_->averaging->inner.setting(name, where);
    if (!state_->groups.empty()) {
      const Group& group = state_->group_of_setting(name);
      return group.optimizer.setting(name, where);
    }
    const auto value = state_->settings.find(name);
    if (value == state_->settings.end())
      throw Error(fmt::format("{} has no setting '{}'", this->name(), name));
    return value->second;
  });
}

std::vector<std::pair<std::string, double>> Optimizer::settings() const {
  if (state_->averaging) return state_->averaging->inner.settings();
  std::vector<std::pair<std::string, double>> list(state_->settings.begin(), state_->settings.end());
  for (size_t i = 0; i < state_->groups.size(); ++i)
    for (const auto& [name, value] : state_->groups[i].optimizer.settings())
      list.emplace_back(fmt::format("{}.{}", i, name), value);
  return list;
}

void Optimizer::set(std::string_view name, double value, std::source_location where) {
  (void)setting(name, where);
  if (state_->averaging) return state_->averaging->inner.set(name, value, where);
  check_setting(is_valid_setting(name, value), this->name(), name, value, where);
  if (!state_->groups.empty()) {
    Optimizer of_group = state_->group_of_setting(name).optimizer;
    return of_group.set(name, value, where);
  }
  state_->settings.find(name)->second = value;
  for (auto& [key, leaf] : state_->setting_leaves)
    if (std::get<0>(key) == name) set_value(leaf, full({}, value, leaf.dtype()));
}

std::vector<std::pair<std::string, Variable>> Optimizer::state_of(const Variable& parameter) const {
  if (const Group* group = state_->group_of(parameter)) return group->optimizer.state_of(parameter);
  std::vector<std::pair<std::string, Variable>> states;
  if (state_->averaging) states = state_->averaging->inner.state_of(parameter);
  const auto own = state_->parameters.find(parameter.node());
  if (own == state_->parameters.end()) return states;
  states.insert(states.end(), own->second.states.begin(), own->second.states.end());
  return states;
}

void Optimizer::set_state(const Variable& parameter, std::string_view name, const Tensor& value,
                          std::source_location where) {
  if (const Group* group = state_->group_of(parameter)) {
    Optimizer of_group = group->optimizer;
    return of_group.set_state(parameter, name, value, where);
  }
  if (state_->averaging && !is_average_state(name))
    return state_->averaging->inner.set_state(parameter, name, value, where);
  located(where, [&] {
    if (!parameter.defined() || !is_parameter(parameter.node()->op()) || !updates(parameter))
      throw Error(fmt::format("{}: set_state takes a parameter that it updates", this->name()));
    const Spec spec{is_half(parameter.dtype()) ? DType::float32 : parameter.dtype(),
                    value.rank() == 0 ? Shape() : state_shape(parameter, name)};
    set_value(state_->leaf(parameter, name, spec, 0), value);
  });
}

Shape Optimizer::state_shape(const Variable& parameter, std::string_view name) const {
  if (const Group* group = state_->group_of(parameter)) return group->optimizer.state_shape(parameter, name);
  if (state_->averaging && !is_average_state(name))
    return state_->averaging->inner.state_shape(parameter, name);
  return state_->rule ? state_->rule->state_shape(name, parameter.shape()) : parameter.shape();
}

std::vector<std::pair<std::string, Variable>> Optimizer::state() const {
  if (state_->averaging) return state_->averaging->inner.state();
  std::vector<std::pair<std::string, Variable>> list;
  if (state_->schedule_step.defined()) list.emplace_back("schedule_step", state_->schedule_step);
  for (size_t i = 0; i < state_->groups.size(); ++i)
    for (const auto& [name, leaf] : state_->groups[i].optimizer.state())
      list.emplace_back(fmt::format("{}.{}", i, name), leaf);
  return list;
}

bool Optimizer::updates(const Variable& parameter) const {
  if (state_->averaging) return state_->averaging->inner.updates(parameter);
  return state_->groups.empty() || state_->group_of(parameter);
}

bool Optimizer::reads_rows(const Variable& parameter, const Variable& gradient, bool by_rows) const {
  return reads_rows(parameter, gradient, by_rows, false);
}

bool Optimizer::reads_rows(const Variable& parameter, const Variable& gradient, bool by_rows,
                           bool decays) const {
  if (state_->averaging) return state_->averaging->inner.reads_rows(parameter, gradient, by_rows, decays);
  if (!state_->groups.empty()) {
    const Group* group = state_->group_of(parameter);
    return group && group->optimizer.reads_rows(parameter, gradient, by_rows,
                                                decays || group->options.l1 > 0 || group->options.l2 > 0);
  }
  const bool sparse = state_->common.sparse && is_row_gradient(gradient);
  if (sparse && !by_rows)
    throw UnsupportedError(fmt::format(
        "{}: a sparse optimizer changes the rows that a step looks up, here of '{}' ({}:{}), which are not "
        "known where gradients of several micro-batches (.accumulate) are added up",
        name(), parameter.node()->op().name(), parameter.node()->where.file_name(),
        parameter.node()->where.line()));
  return sparse ||
         (by_rows && !decays && state_->rule->keeps_rows_without_gradient() && has_few_rows(gradient));
}

double Optimizer::scheduled_learning_rate(std::string_view setting) const {
  if (state_->averaging) return state_->averaging->inner.scheduled_learning_rate(setting);
  if (!state_->groups.empty()) {
    const Group& group = state_->group_of_setting(setting);
    return group.optimizer.scheduled_learning_rate(setting);
  }
  const double value = this->setting(setting, {});
  const auto schedules = state_->schedules();
  const auto own = schedules.find(setting);
  if (own == schedules.end()) return value;
  return value * own->second->at(static_cast<int64_t>(state_->schedule_step.item()));
}

std::vector<std::string> Optimizer::learning_rates() const {
  std::vector<std::string> names;
  for (const auto& [name, value] : settings())
    if (name == "lr" || name.ends_with(".lr")) names.push_back(name);
  return names;
}

Variable assignment(const Variable& leaf, const Variable& value) {
  return apply(shared_op<Assign>(), {&leaf, &value}, leaf.node()->where);
}

void check_setting(bool valid, std::string_view optimizer, std::string_view setting, double value,
                   const std::source_location& where) {
  if (!valid)
    located(where, [&] { throw Error(fmt::format("{}: {} cannot be {}", optimizer, setting, value)); });
}

}  // namespace optim

}  // namespace espalier
