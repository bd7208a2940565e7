// Optimizers: update rules as expressions over Variables.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/variable.h"
#include "espalier/optim/schedule.h"

namespace espalier::optim {

/// What an update rule sees of one parameter, and what it does with it. Everything is tree: a rule runs
/// eagerly and frozen alike. Parameters in 16 bits are updated in float32, as which rules see them, and have
/// states in float32.
class ParameterUpdate {
 public:
  ParameterUpdate(Variable leaf, Variable parameter, Variable gradient, struct OptimizerState& state,
                  Variable rate)
      : leaf_(std::move(leaf)),
        parameter_(std::move(parameter)),
        gradient_(std::move(gradient)),
        state_(state),
        rate_(std::move(rate)) {}

  const Variable& parameter() const { return parameter_; }
  /// Clipped, if the optimizer clips.
  const Variable& gradient() const { return gradient_; }
  /// A number that may change between steps, such as the learning rate ("lr", as the schedule has it): a
  /// scalar of the parameter's dtype.
  Variable setting(std::string_view name) const;
  /// A leaf of the parameter's shape that lives between steps. It starts with `initial` everywhere.
  Variable state(std::string_view name, double initial = 0);
  /// A scalar that lives between steps, such as their number.
  Variable scalar_state(std::string_view name, double initial = 0);
  /// Gives a state or the parameter its next value, once all expressions of the step are computed.
  void assign(const Variable& leaf, const Variable& value);
  const std::vector<std::pair<Variable, Variable>>& assignments() const { return assignments_; }

 private:
  Variable leaf_, parameter_, gradient_;
  OptimizerState& state_;
  Variable rate_;  // where there is a schedule: the learning rate in this step
  std::vector<std::pair<Variable, Variable>> assignments_;
};

/// How one parameter is updated.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual std::string_view name() const = 0;
  virtual void update(ParameterUpdate& step) const = 0;
};

/// What every optimizer can do besides its rule.
struct CommonOptions {
  double clip_norm = 0;    ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;   ///< the largest size of one element of a gradient, clipped before the norm; 0: any
  Schedule schedule = {};  ///< what the setting "lr" is multiplied by in each step
};

/// A handle: copies share rule, settings and state.
class Optimizer {
 public:
  /// An optimizer of one's own: a rule, and its settings by name. Throws Error for options that make no
  /// sense.
  Optimizer(std::shared_ptr<const UpdateRule> rule, std::vector<std::pair<std::string_view, double>> settings,
            const CommonOptions& common = {}, std::source_location where = std::source_location::current());

  std::string_view name() const;
  /// Without the schedule's factor.
  double learning_rate() const { return setting("lr"); }
  /// With it, for the next step.
  double scheduled_learning_rate() const;
  /// From the next step on, eager and frozen. Throws Error if it is negative or not finite.
  void set_learning_rate(double lr, std::source_location where = std::source_location::current()) {
    set("lr", lr, where);
  }
  double setting(std::string_view name) const;
  /// All settings, by name.
  std::vector<std::pair<std::string, double>> settings() const;
  void set(std::string_view name, double value, std::source_location where = std::source_location::current());
  /// What lives between steps, for each parameter: ("momentum", leaf) and so on.
  std::vector<std::pair<std::string, Variable>> state_of(const Variable& parameter) const;
  /// What lives between steps and belongs to no parameter: ("schedule_step", leaf), the number of updates so
  /// far, where there is a schedule.
  std::vector<std::pair<std::string, Variable>> state() const;

  /// The update nodes of these (parameter, gradient) pairs, not yet run. Where `only_if` is given and false,
  /// everything keeps its value. For evaluators.
  std::vector<Variable> build(const std::vector<std::pair<Variable, Variable>>& gradients,
                              const Variable& only_if = {}) const;
  /// What tells optimizers apart.
  uint64_t identity() const;

 private:
  std::shared_ptr<OptimizerState> state_;
};

/// A number that can only be a number: so `Sgd({})` means the default options, and not a learning rate of 0.
struct LearningRate {
  LearningRate(double lr) : value(lr) {}
  double value;
};

/// The node that gives a leaf its next value when an update runs. For evaluators.
Variable assignment(const Variable& leaf, const Variable& value);

/// Throws Error naming optimizer, setting and value unless `valid`.
void check_setting(bool valid, std::string_view optimizer, std::string_view setting, double value,
                   const std::source_location& where);

}  // namespace espalier::optim
