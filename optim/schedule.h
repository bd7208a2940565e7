// Learning rate schedules.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <source_location>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier::optim {

/// The factor of the learning rate in each step (0, 1, 2, …): an expression over the step, so that eager
/// updates and plans compute the same. Made from a callable that takes a Variable (a float64 scalar) or a
/// number; errors name the line where it was made.
class Schedule {
 public:
  using Where = std::source_location;

  /// A constant factor of 1.
  Schedule() = default;
  template <class F>
  requires std::invocable<const F&, const Variable&> || std::invocable<const F&, int64_t> Schedule(
      F f, Where where = Where::current())
      : where_(where) {
    if constexpr (std::invocable<const F&, const Variable&>)
      expression_ = std::move(f);
    else
      expression_ = over_numbers(std::move(f), where);
  }

  bool is_constant() const { return !expression_; }
  /// The factor, a float64 scalar. Throws ShapeError if the user's expression is not a scalar.
  Variable factor(const Variable& step) const;
  double at(int64_t step) const;

 private:
  using Expression = std::function<Variable(const Variable& step)>;
  static Expression over_numbers(std::function<double(int64_t)> f, const Where& where);

  Expression expression_;
  Where where_;
};

struct StepDecayOptions {
  int64_t every = 1;    ///< steps
  double factor = 0.1;  ///< the rate is multiplied by it after every `every` steps
};
/// factor^⌊step / every⌋. These functions throw Error for invalid numbers. See plateau.h for rates that
/// follow a validation loss.
Schedule step_decay(const StepDecayOptions& options,
                    std::source_location where = std::source_location::current());

struct MultiStepOptions {
  std::vector<int64_t> milestones = {};  ///< steps, in any order; one may stand twice
  double factor = 0.1;                   ///< the rate is multiplied by it from every milestone on
};
/// factor to the number of milestones so far.
Schedule multi_step(const MultiStepOptions& options,
                    std::source_location where = std::source_location::current());

/// factor^step
Schedule exponential(double factor, std::source_location where = std::source_location::current());

struct CosineOptions {
  int64_t steps = 1;    ///< until the end of the descent, including the warm-up
  int64_t warm_up = 0;  ///< steps in which the factor rises linearly: (step + 1) / (warm_up + 1)
  double last = 0;      ///< the factor at the end and after it
};
/// From 1 down to `last` along half a cosine (Loshchilov & Hutter 2017, without restarts), after a warm-up.
Schedule cosine(const CosineOptions& options, std::source_location where = std::source_location::current());

struct PolynomialOptions {
  int64_t steps = 1;  ///< until the end of the descent
  double power = 1;
  double last = 0;  ///< the factor at the end and after it
};
/// last + (1 − last) · (1 − step / steps)^power
Schedule polynomial(const PolynomialOptions& options,
                    std::source_location where = std::source_location::current());

struct CosineRestartOptions {
  int64_t steps = 1;      ///< of the first descent
  double multiplier = 1;  ///< each descent takes so many times the steps of the one before: 1 or more
  double last = 0;        ///< the factor towards which each descends
};
/// Descents along half a cosine, each from 1 again (Loshchilov and Hutter, SGDR, 2017).
Schedule cosine_restarts(const CosineRestartOptions& options,
                         std::source_location where = std::source_location::current());

enum class Annealing : uint8_t { cosine, linear };
struct OneCycleOptions {
  int64_t steps = 2;        ///< of the cycle
  double rise = 0.3;        ///< the share of the steps in which the factor rises
  double first = 1.0 / 25;  ///< the factor at the beginning
  double last = 4e-6;       ///< the factor at the end and after it
  Annealing annealing = Annealing::cosine;
  bool three_phases = false;  ///< falls to `first` in as many steps as it rises, and then to `last`
};
/// From `first` to 1, the rate of the optimizer, and down to `last` (Smith and Topin, Super-convergence,
/// 2018; in PyTorch's form: `steps` counts the first and the last one).
Schedule one_cycle(const OneCycleOptions& options,
                   std::source_location where = std::source_location::current());

/// The factor of the momentum that goes with one_cycle: from 1 down to `low` while the rate rises, and back
/// to 1 while it falls, for `.momentum_schedule` of Sgd and `.beta1_schedule` of Adam. `first` and `last` of
/// the options are those of the rate. PyTorch's 0.95 and 0.85 are a momentum of 0.95 and the default.
Schedule one_cycle_momentum(const OneCycleOptions& options, double low = 0.85 / 0.95,
                            std::source_location where = std::source_location::current());

enum class CycleShape : uint8_t {
  triangle,     ///< all cycles are alike
  halving,      ///< each is half as high as the one before
  exponential,  ///< the height at a step is decay^step
};
struct CyclicalOptions {
  double low = 0.1;   ///< the factor at the ends of a cycle; it rises to 1
  int64_t up = 2000;  ///< steps
  int64_t down = 0;   ///< steps; 0: as many as up
  CycleShape shape = CycleShape::triangle;
  double decay = 1;  ///< of CycleShape::exponential
};
/// Rises and falls along lines, again and again (Smith, Cyclical learning rates, 2017).
Schedule cyclical(const CyclicalOptions& options,
                  std::source_location where = std::source_location::current());

struct WarmUpOptions {
  int64_t steps = 1;  ///< until the factor is 1
  double first = 0;   ///< the factor of step 0
};
/// Rises along a line from `first` to 1. In front of another schedule:
/// `sequential({warm_up({.steps = 100, .first = 0.01}), cosine({.steps = 900})}, {100})`.
Schedule warm_up(const WarmUpOptions& options, std::source_location where = std::source_location::current());

/// The product of the factors of several schedules.
Schedule chained(const std::vector<Schedule>& schedules,
                 std::source_location where = std::source_location::current());

/// One schedule after the other: the next begins, at its step 0, at each milestone. Throws Error unless
/// milestones rise and are one less than schedules.
Schedule sequential(const std::vector<Schedule>& schedules, const std::vector<int64_t>& milestones,
                    std::source_location where = std::source_location::current());

}  // namespace espalier::optim
