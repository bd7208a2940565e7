// Learning rate schedules.
#pragma once
#include <concepts>
#include <cstdint>
#include <functional>
#include <source_location>

#include "espalier/core/variable.h"

namespace espalier::optim {

/// The factor of the learning rate in each step (0, 1, 2, …): an expression over the step, so that eager
/// updates and plans compute the same. Made from a callable that takes a Variable (a float64 scalar) or a
/// number.
class Schedule {
 public:
  /// A constant factor of 1.
  Schedule() = default;
  template <class F>
  requires std::invocable<const F&, const Variable&> || std::invocable<const F&, int64_t> Schedule(F f) {
    if constexpr (std::invocable<const F&, const Variable&>)
      expression_ = std::move(f);
    else
      expression_ = over_numbers(std::move(f));
  }

  bool is_constant() const { return !expression_; }
  /// The factor, a float64 scalar. Throws ShapeError if the user's expression is not a scalar.
  Variable factor(const Variable& step) const;
  double at(int64_t step) const;

 private:
  using Expression = std::function<Variable(const Variable& step)>;
  static Expression over_numbers(std::function<double(int64_t)> f);

  Expression expression_;
};

struct StepDecayOptions {
  int64_t every = 1;    ///< steps
  double factor = 0.1;  ///< the rate is multiplied by it after every `every` steps
};
/// factor^⌊step / every⌋. These functions throw Error for invalid numbers.
Schedule step_decay(const StepDecayOptions& options,
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

}  // namespace espalier::optim
