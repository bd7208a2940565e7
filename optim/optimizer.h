// Optimizers: update rules as expressions over Variables.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/variable.h"
#include "espalier/optim/schedule.h"

namespace espalier::optim {

/// The update of one parameter: the inputs of a rule and its assignments. All of them are Variables, so a
/// rule runs eagerly and in plans. For a 16-bit parameter, the rule gets it cast to float32, and states are
/// float32. Where few rows of the parameter have a gradient, the rule may get these rows alone, of the
/// parameter, its gradient and its states: see UpdateRule::keeps_rows_without_gradient.
class ParameterUpdate {
 public:
  /// Settings with their schedules' factors of this step, by name.
  using ScheduledSettings = std::map<std::string_view, Variable>;
  /// `rows` is undefined if the update is of the whole parameter.
  ParameterUpdate(Variable leaf, Variable gradient, Variable rows, struct OptimizerState& state,
                  ScheduledSettings scheduled, const struct GroupOptions& group);

  const Variable& parameter() const { return parameter_; }
  /// The gradient, clipped if the optimizer clips, and negative if it maximizes.
  const Variable& gradient() const { return gradient_; }
  /// A number that may change between steps, such as the learning rate ("lr"), with its schedule's factor: a
  /// scalar of the dtype of `parameter()`.
  Variable setting(std::string_view name) const;
  /// A leaf that is kept between steps, filled with `initial` at first. It has the parameter's shape, or the
  /// one that the rule's `state_shape` says.
  Variable state(std::string_view name, double initial = 0);
  /// A scalar that is kept between steps, such as their number.
  Variable scalar_state(std::string_view name, double initial = 0);
  /// Whether the parameter decays: with `vectors` false only if it is a matrix or of a higher rank.
  bool decays(double weight_decay, bool vectors) const {
    return weight_decay > 0 && (vectors || leaf_.rank() >= 2);
  }
  /// Sets the next value of a state or the parameter. It is written after all expressions of the step are
  /// computed. Throws Error unless `leaf` is a leaf, and ShapeError for a value of another shape or dtype.
  void assign(const Variable& leaf, const Variable& value);
  const std::vector<std::pair<Variable, Variable>>& assignments() const { return assignments_; }

 private:
  Variable leaf_, gradient_, rows_, parameter_;
  OptimizerState& state_;
  ScheduledSettings scheduled_;
  std::vector<std::pair<Variable, Variable>> taken_;  // the rows of states, and the states
  std::vector<std::pair<Variable, Variable>> assignments_;
};

/// The update rule of an optimizer, for one parameter at a time. An Error in `update` names the rule.
class UpdateRule {
 public:
  virtual ~UpdateRule() = default;
  virtual std::string_view name() const = 0;
  virtual void update(ParameterUpdate& step) const = 0;
  /// Whether a step in which an element's gradient is zero changes neither the element nor its states: the
  /// rule is then given only the rows whose gradient may be another.
  virtual bool keeps_rows_without_gradient() const { return false; }
  /// The shape of a state that is no scalar, for a parameter of that shape.
  virtual Shape state_shape(std::string_view state, const Shape& parameter) const {
    (void)state;
    return parameter;
  }
};

/// The options that all optimizers have.
struct CommonOptions {
  double clip_norm = 0;    ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;   ///< the largest size of one element of a gradient, clipped before the norm; 0: any
  Schedule schedule = {};  ///< the factor of the setting "lr" in each step
  bool sparse = false;     ///< rows without a gradient stay as they are, with their states, for any rule
  bool maximize = false;   ///< rules get the negative gradient
  std::map<std::string, Schedule> schedules = {};  ///< the factors of other settings in each step, by name
};

/// A handle: copies share rule, settings and state.
class Optimizer {
 public:
  Optimizer(const Optimizer&) = default;  // and no moves: what is moved from stays valid
  Optimizer& operator=(const Optimizer&) = default;
  /// A custom optimizer: a rule, and its settings by name. Throws Error for invalid options.
  Optimizer(std::shared_ptr<const UpdateRule> rule, std::vector<std::pair<std::string_view, double>> settings,
            const CommonOptions& common = {}, std::source_location where = std::source_location::current());

  std::string_view name() const;
  /// The learning rate without the schedule's factor.
  double learning_rate(std::source_location where = std::source_location::current()) const {
    return setting("lr", where);
  }
  /// The learning rate of the next step, with the schedule's factor. Groups have one each: "0.lr".
  double scheduled_learning_rate(std::string_view setting = "lr") const;
  /// The names of the learning rates among `settings`: "lr", or of each group, "0.lr". None if a custom
  /// optimizer has none.
  std::vector<std::string> learning_rates() const;
  /// Sets the learning rate from the next step on, eagerly and in plans. Throws Error if it is negative or
  /// not finite.
  void set_learning_rate(double lr, std::source_location where = std::source_location::current()) {
    set("lr", lr, where);
  }
  /// Throws Error if it has none of that name.
  double setting(std::string_view name, std::source_location where = std::source_location::current()) const;
  /// All settings, by name.
  std::vector<std::pair<std::string, double>> settings() const;
  void set(std::string_view name, double value, std::source_location where = std::source_location::current());
  /// The states of a parameter: ("momentum", leaf) and so on.
  std::vector<std::pair<std::string, Variable>> state_of(const Variable& parameter) const;
  /// Gives a state of a parameter its value, and makes it if the rule has not yet. Throws ShapeError or
  /// TypeError unless it has the state's shape or is a scalar, and the dtype in which the rule computes.
  void set_state(const Variable& parameter, std::string_view name, const Tensor& value,
                 std::source_location where = std::source_location::current());
  /// The shape of a state of a parameter that is no scalar: mostly the parameter's.
  Shape state_shape(const Variable& parameter, std::string_view name) const;
  /// The states that belong to no parameter: with a schedule, ("schedule_step", leaf), the number of updates
  /// so far.
  std::vector<std::pair<std::string, Variable>> state() const;

  /// Whether it has updates for a parameter: Groups, only for those in a group.
  bool updates(const Variable& parameter) const;

  /// Whether an update of the parameter by this gradient reads and writes only some of its rows. Without
  /// `by_rows` it never does; then throws UnsupportedError if the optimizer is a sparse one.
  bool reads_rows(const Variable& parameter, const Variable& gradient, bool by_rows = true) const;

  /// Builds the update nodes of these (parameter, gradient) pairs, without running them: evaluators write
  /// their leaves together, and `forward` on a node throws Error. If `only_if` is defined, a step in which it
  /// is false changes no leaf. Without `by_rows`, updates read whole gradients, so that these can be added up
  /// before; it throws UnsupportedError if the optimizer is a sparse one and there are rows.
  std::vector<Variable> build(const std::vector<std::pair<Variable, Variable>>& gradients,
                              const Variable& only_if = {}, bool by_rows = true) const;
  /// A unique number, which copies share.
  uint64_t identity() const;

 protected:
  explicit Optimizer(std::shared_ptr<OptimizerState> state) : state_(std::move(state)) {}
  const std::shared_ptr<OptimizerState>& shared_state() const { return state_; }

 private:
  friend struct TakenGradients;
  /// Whether it reads only some rows; no rule does so without being asked to if parameters decay.
  bool reads_rows(const Variable& parameter, const Variable& gradient, bool by_rows, bool decays) const;

  std::shared_ptr<OptimizerState> state_;
};

/// No argument, or `{}`: default options. An enumeration, since `Adam({})` could mean an Adam of another
/// class.
enum class DefaultSettings {};

/// Converts from a number only, so that `Sgd({})` means default options and not a learning rate of 0.
struct LearningRate {
  LearningRate(double lr) : value(lr) {}
  double value;
};

/// The node that assigns `value` to `leaf` when an update runs. For evaluators.
Variable assignment(const Variable& leaf, const Variable& value);

/// Throws Error naming optimizer, setting and value unless `valid`.
void check_setting(bool valid, std::string_view optimizer, std::string_view setting, double value,
                   const std::source_location& where);

}  // namespace espalier::optim
