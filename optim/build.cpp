// The update nodes of an optimizer: gradients are scaled and clipped, rules make the next values, and
// averages read these.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <map>

#include "espalier/core/node.h"
#include "espalier/ops/indexing/rows.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/clip.h"
#include "espalier/optim/rule.h"
#include "espalier/optim/state.h"

namespace espalier::optim {

namespace {

BuildContext update_context() {
  BuildContext now = build_context();
  now.tag = Tag::update;
  now.no_grad = true;
  now.lazy = true;  // evaluated by each run of the update
  return now;
}

/// The new value of a leaf, or the old one if the condition is false.
Variable chosen(const Variable& condition, const Variable& value, const Variable& leaf) {
  if (!puts_rows(value)) return where(condition, value, leaf);
  const auto input = [&](size_t i) { return value.node()->inputs[i].variable(); };
  return put_rows(leaf, input(1), where(condition, input(2), take_rows(leaf, input(1))));
}

void clip_gradients(ParameterGradients& gradients, const CommonOptions& common) {
  if (common.clip_value > 0) clip_values(gradients, common.clip_value);
  if (common.clip_norm > 0) clip_norm(gradients, common.clip_norm);
}

}  // namespace

/// The gradients of an optimizer's parameters as its rule reads them; those of Groups, for each group.
struct TakenGradients {
  const Optimizer& optimizer;
  GroupOptions group;
  ParameterGradients gradients;
  std::map<const Node*, Variable> rows;  ///< of parameters of which the rule is given these alone
  std::vector<TakenGradients> parts;     ///< of the groups, or of the optimizer that is averaged

  OptimizerState& state() const { return *optimizer.state_; }

  TakenGradients(const Optimizer& of, ParameterGradients all, bool by_rows, const GroupOptions& options)
      : optimizer(of), group(options) {
    if (all.empty()) return;
    BuildContext now = update_context();
    now.where = &all.front().first.node()->where;
    const BuildScope scope(now);
    if (state().averaging) {
      parts.emplace_back(state().averaging->inner, std::move(all), by_rows, options);
    } else if (!state().groups.empty()) {
      take_groups(all, by_rows);
    } else {
      gradients = std::move(all);
      take_rows_and_scale(by_rows);
      clip_gradients(gradients, state().common);
    }
  }

  /// (leaf, next value) of what an update writes.
  ParameterGradients next_values() const {
    ParameterGradients next;
    for (const TakenGradients& part : parts) {
      const ParameterGradients own = part.next_values();
      next.insert(next.end(), own.begin(), own.end());
    }
    if (state().averaging) add_averages(next);
    if (gradients.empty()) return next;
    const ScheduledBySpec scheduled = add_schedules(next);
    BuildContext now = update_context();
    for (const auto& [parameter, gradient] : gradients) {
      now.where = &parameter.node()->where;
      const BuildScope scope(now);
      const auto own = rows.find(parameter.node());
      const auto settings = scheduled.find({gradient.dtype(), parameter.device()});
      ParameterUpdate step(
          parameter, gradient, own == rows.end() ? Variable() : own->second, state(),
          settings == scheduled.end() ? ParameterUpdate::ScheduledSettings() : settings->second, group);
      update_by_rule(step, parameter);
      next.insert(next.end(), step.assignments().begin(), step.assignments().end());
    }
    return next;
  }

 private:
  void update_by_rule(ParameterUpdate& step, const Variable& parameter) const {
    const UpdateRule& rule = *state().rule;
    if (dynamic_cast<const BuiltInRule*>(&rule)) return rule.update(step);
    run_own_lines([&] { rule.update(step); },
                  [&] {
                    return fmt::format(", in the update rule '{}' for the parameter '{}'", rule.name(),
                                       parameter.node()->op().name());
                  });
  }

  using ScheduledBySpec = std::map<std::pair<DType, Device>, ParameterUpdate::ScheduledSettings>;

  void take_groups(const ParameterGradients& all, bool by_rows) {
    for (const Group& part : state().groups) {
      ParameterGradients own;
      std::copy_if(all.begin(), all.end(), std::back_inserter(own),
                   [&](const auto& pair) { return part.parameters.contains(pair.first); });
      const GroupOptions& o = part.options;
      parts.emplace_back(
          part.optimizer, std::move(own), by_rows,
          GroupOptions{group.gradient_scale * o.gradient_scale, group.l1 + o.l1, group.l2 + o.l2});
    }
    if (state().common.clip_value == 0 && state().common.clip_norm == 0) return;
    ParameterGradients together;
    each([&](auto& pair) { together.push_back(pair); });
    clip_gradients(together, state().common);
    auto clipped = together.begin();
    each([&](auto& pair) { pair.second = (clipped++)->second; });
  }

  void take_rows_and_scale(bool by_rows) {
    for (auto& [parameter, gradient] : gradients) {
      if (optimizer.reads_rows(parameter, gradient, by_rows, group.l1 > 0 || group.l2 > 0)) {
        const RowGradient own = row_gradient(gradient);
        rows.emplace(parameter.node(), own.rows);
        gradient = own.values;
      }
      if (is_half(gradient.dtype())) gradient = cast(gradient, DType::float32);
      if (state().common.maximize) gradient = -gradient;
      if (group.gradient_scale != 1) gradient = gradient * group.gradient_scale;
    }
  }

  /// All gradients of this and its parts.
  void each(const std::function<void(std::pair<Variable, Variable>&)>& f) {
    for (auto& pair : gradients) f(pair);
    for (TakenGradients& part : parts) part.each(f);
  }

  /// The settings with schedules, as they are in this step. Counts the step.
  ScheduledBySpec add_schedules(ParameterGradients& next) const {
    ScheduledBySpec scheduled;
    const Variable& step = state().schedule_step;
    if (!step.defined()) return scheduled;
    BuildContext now = update_context();
    now.where = &gradients.front().first.node()->where;
    const BuildScope scope(now);
    for (const auto& [name, schedule] : state().schedules()) {
      const Variable value =
          state().setting_leaf(name, DType::float64, step.device()) * schedule->factor(step);
      for (const auto& [parameter, gradient] : gradients)
        if (Variable& own = scheduled[{gradient.dtype(), parameter.device()}][name]; !own.defined())
          own = (gradient.dtype() == value.dtype() ? value : cast(value, gradient.dtype()))
                    .to(parameter.device());
    }
    next.emplace_back(step, step + 1.0);
    return scheduled;
  }

  void add_averages(ParameterGradients& next) const {
    ParameterGradients averages;
    BuildContext now = update_context();
    for (const auto& [leaf, value] : next) {
      if (!is_parameter(leaf.node()->op())) continue;
      now.where = &leaf.node()->where;
      const BuildScope scope(now);
      add_average(leaf, value, averages);
    }
    next.insert(next.end(), averages.begin(), averages.end());
  }

  /// average ← average + w · (value − average), where w is 0 in steps that do not count.
  void add_average(const Variable& leaf, const Variable& value, ParameterGradients& averages) const {
    const Averaging& how = *state().averaging;
    const DType dtype = is_half(leaf.dtype()) ? DType::float32 : leaf.dtype();
    const auto scalar = [&](std::string_view name) { return state().leaf(leaf, name, {dtype, {}}, 0); };
    const Variable average = state().leaf(leaf, "moving_average", {dtype, leaf.shape()}, 0),
                   averaged = scalar("averaged");
    Variable count = averaged + 1.0, share = how.share(count);
    if (how.start > 0 || how.every > 1) {
      const Variable step = scalar("average_step");
      const Variable since = step - static_cast<double>(how.start),
                     every = full_like(step, static_cast<double>(how.every));
      const Variable due = logical_and(greater_equal(since, 0.0), equal(floor(since / every) * every, since));
      share = where(due, share, 0.0);
      count = where(due, count, averaged);
      averages.emplace_back(step, step + 1.0);
    }
    // Rows are put into the leaf's memory where they are assigned; the average reads the whole once more.
    const auto input = [&](size_t i) { return value.node()->inputs[i].variable(); };
    const Variable whole = puts_rows(value) ? put_rows(leaf, input(1), input(2)) : value;
    const Variable target = whole.dtype() == dtype ? whole : cast(whole, dtype);
    averages.emplace_back(average, average + (target - average) * share);
    averages.emplace_back(averaged, count);
  }
};

std::vector<Variable> Optimizer::build(const std::vector<std::pair<Variable, Variable>>& gradients,
                                       const Variable& only_if, bool by_rows) const {
  ParameterGradients assignments = TakenGradients(*this, gradients, by_rows, {}).next_values();
  BuildContext now = update_context();
  if (only_if.defined())
    for (auto& [leaf, value] : assignments) {
      now.where = &leaf.node()->where;
      const BuildScope scope(now);
      value = chosen(only_if.to(leaf.device()), value, leaf);
    }
  // Assignments come last, so that all expressions read the old values.
  std::vector<Variable> nodes;
  for (const auto& [leaf, value] : assignments) {
    now.where = &leaf.node()->where;
    const BuildScope scope(now);
    nodes.push_back(assignment(leaf, value));
  }
  return nodes;
}

}  // namespace espalier::optim
