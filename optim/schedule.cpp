#include "espalier/optim/schedule.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/schedule_checks.h"

namespace espalier::optim {

namespace {

/// Throws with the line where the schedule was made, and not that of the call which asks it.
template <class E>
[[noreturn]] void fail_schedule(const std::source_location& made, const std::string& message) {
  E error(message);
  BuildContext apart = build_context();
  apart.where = nullptr;
  const BuildScope scope(apart);
  error.locate(made);
  throw error;
}

}  // namespace

Variable Schedule::factor(const Variable& step) const {
  const Variable factor = expression_(step);
  if (!factor.defined() || factor.shape().rank() != 0)
    fail_schedule<ShapeError>(where_,
                              fmt::format("a schedule must return a scalar, not {}",
                                          factor.defined() ? factor.shape().str() : "an undefined Variable"));
  return factor.dtype() == DType::float64 ? factor : cast(factor, DType::float64);
}

double Schedule::at(int64_t step) const {
  return is_constant() ? 1 : factor(full({}, static_cast<double>(step), DType::float64)).item();
}

Schedule::Expression Schedule::over_numbers(std::function<double(int64_t)> f, const Where& where) {
  if (!f) return {};
  const auto forward = [f = std::move(f), where](const std::vector<Tensor>& in) {
    const auto step = static_cast<int64_t>(in[0].item());
    const double factor = f(step);
    if (!std::isfinite(factor))
      fail_schedule<Error>(where, fmt::format("the schedule returns {} for step {}", factor, step));
    return full({}, factor, DType::float64);
  };
  const CustomOp op = custom_op(
      {.name = "schedule", .forward = forward, .gradient = {}, .infer = [](const std::vector<Spec>& in) {
         return in[0];
       }});
  return [op](const Variable& step) { return op({step}); };
}

Schedule step_decay(const StepDecayOptions& o, std::source_location where) {
  check_steps("step_decay", "every", o.every, 1, where);
  check_factor("step_decay", "factor", o.factor, where);
  return [o](const Variable& step) { return power(o.factor, floor(step / static_cast<double>(o.every))); };
}

Schedule exponential(double factor, std::source_location where) {
  check_factor("exponential", "factor", factor, where);
  return [factor](const Variable& step) { return power(factor, step); };
}

Schedule cosine(const CosineOptions& o, std::source_location where) {
  check_steps("cosine", "warm_up", o.warm_up, 0, where);
  check_steps("cosine", o.warm_up > 0 ? "steps, which include those of warm_up," : "steps", o.steps,
              o.warm_up + 1, where);
  check_factor("cosine", "last", o.last, where);
  return [o](const Variable& step) -> Variable {
    const auto warm_up = static_cast<double>(o.warm_up);
    const Variable way = minimum((step - warm_up) / (static_cast<double>(o.steps) - warm_up), 1.0);
    const Variable descent = o.last + (1 - o.last) / 2 * (1 + cos(way * std::numbers::pi));
    if (o.warm_up == 0) return descent;
    return espalier::where(less(step, warm_up), (step + 1.0) / (warm_up + 1), descent);
  };
}

Schedule multi_step(const MultiStepOptions& o, std::source_location where) {
  for (const int64_t milestone : o.milestones) check_steps("multi_step", "a milestone", milestone, 0, where);
  check_factor("multi_step", "factor", o.factor, where);
  return [o](const Variable& step) {
    Variable passed = zeros_like(step);
    for (const int64_t milestone : o.milestones)
      passed = passed + cast(greater_equal(step, static_cast<double>(milestone)), DType::float64);
    return power(o.factor, passed);
  };
}

Schedule polynomial(const PolynomialOptions& o, std::source_location where) {
  check_steps("polynomial", "steps", o.steps, 1, where);
  check_factor("polynomial", "power", o.power, where);
  check_factor("polynomial", "last", o.last, where);
  return [o](const Variable& step) {
    const Variable left = 1.0 - minimum(step / static_cast<double>(o.steps), 1.0);
    return o.last + (1 - o.last) * power(left, o.power);
  };
}

Schedule chained(const std::vector<Schedule>& schedules, std::source_location where) {
  if (schedules.empty()) located(where, [] { throw Error("chained: there must be at least one schedule"); });
  return [schedules](const Variable& step) {
    Variable product = ones_like(step);
    for (const Schedule& schedule : schedules)
      if (!schedule.is_constant()) product = product * schedule.factor(step);
    return product;
  };
}

Schedule sequential(const std::vector<Schedule>& schedules, const std::vector<int64_t>& milestones,
                    std::source_location where) {
  if (schedules.size() != milestones.size() + 1)
    located(where, [&] {
      if (schedules.empty()) throw Error("sequential: there must be at least one schedule");
      throw Error(fmt::format("sequential: between {} schedules there are {} milestones, not {}",
                              schedules.size(), schedules.size() - 1, milestones.size()));
    });
  int64_t least = 1;
  for (const int64_t milestone : milestones) {
    check_steps("sequential", "a milestone", milestone, least, where);
    least = milestone + 1;
  }
  return [schedules, milestones](const Variable& step) {
    const auto factor = [](const Schedule& schedule, const Variable& at) {
      return schedule.is_constant() ? ones_like(at) : schedule.factor(at);
    };
    Variable all = factor(schedules[0], step);
    for (size_t i = 0; i < milestones.size(); ++i) {
      const Variable since = step - static_cast<double>(milestones[i]);
      all = espalier::where(less(since, 0.0), all, factor(schedules[i + 1], maximum(since, 0.0)));
    }
    return all;
  };
}

}  // namespace espalier::optim
