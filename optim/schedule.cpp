#include "espalier/optim/schedule.h"

#include <fmt/format.h>

#include <cmath>
#include <numbers>

#include "espalier/core/custom_op.h"
#include "espalier/core/error.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

Variable Schedule::factor(const Variable& step) const {
  const Variable factor = expression_(step);
  if (!factor.defined() || factor.shape().rank() != 0)
    throw ShapeError(fmt::format("a schedule must return a scalar, not {}",
                                 factor.defined() ? factor.shape().str() : "an undefined Variable"));
  return factor.dtype() == DType::float64 ? factor : cast(factor, DType::float64);
}

double Schedule::at(int64_t step) const {
  return is_constant() ? 1 : factor(full({}, static_cast<double>(step), DType::float64)).item();
}

Schedule::Expression Schedule::over_numbers(std::function<double(int64_t)> f) {
  const auto forward = [f = std::move(f)](const std::vector<Tensor>& in) {
    const auto step = static_cast<int64_t>(in[0].item());
    const double factor = f(step);
    if (!std::isfinite(factor)) throw Error(fmt::format("the schedule returns {} for step {}", factor, step));
    return full({}, factor, DType::float64);
  };
  const CustomOp op = custom_op(
      {.name = "schedule", .forward = forward, .gradient = {}, .infer = [](const std::vector<Spec>& in) {
         return in[0];
       }});
  return [op](const Variable& step) { return op({step}); };
}

namespace {

void check_factor(std::string_view schedule, std::string_view what, double factor,
                  const std::source_location& where) {
  check_setting(std::isfinite(factor) && factor >= 0, schedule, what, factor, where);
}
void check_steps(std::string_view schedule, std::string_view what, int64_t steps, int64_t least,
                 const std::source_location& where) {
  check_setting(steps >= least, schedule, what, static_cast<double>(steps), where);
}

}  // namespace

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
  check_steps("cosine", "steps", o.steps, o.warm_up + 1, where);
  check_factor("cosine", "last", o.last, where);
  return [o](const Variable& step) -> Variable {
    const auto warm_up = static_cast<double>(o.warm_up);
    const Variable way = minimum((step - warm_up) / (static_cast<double>(o.steps) - warm_up), 1.0);
    const Variable descent = o.last + (1 - o.last) / 2 * (1 + cos(way * std::numbers::pi));
    if (o.warm_up == 0) return descent;
    return espalier::where(less(step, warm_up), (step + 1.0) / (warm_up + 1), descent);
  };
}

}  // namespace espalier::optim
