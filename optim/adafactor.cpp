#include "espalier/optim/adafactor.h"

#include <cfloat>

#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"

namespace espalier::optim {

namespace {

class AdafactorRule : public BuiltInRule {
 public:
  explicit AdafactorRule(const AdafactorOptions& o) : o_(o) {}
  std::string_view name() const override { return "Adafactor"; }

  Shape state_shape(std::string_view state, const Shape& parameter) const override {
    if (parameter.rank() < 2) return parameter;
    Dims dims(parameter.begin(), parameter.end());
    if (state == "row_variance") dims[dims.size() - 1] = 1;
    if (state == "column_variance") dims[dims.size() - 2] = 1;
    return Shape(dims);
  }

  void update(ParameterUpdate& step) const override {
    const Variable &p = step.parameter(), &g = step.gradient();
    const Variable t = step.scalar_state("step"), lr = step.setting("lr");
    const bool wide = p.dtype() == DType::float64;
    const double epsilon1 = o_.epsilon1 > 0 ? o_.epsilon1 : wide ? DBL_EPSILON : FLT_EPSILON;

    const Variable t1 = t + 1.0;
    const Variable fresh = power(t1, o_.beta2_decay);  // 1 − β
    const Variable alpha = maximum(rms(p), o_.epsilon2) * minimum(lr, 1.0 / sqrt(t1));
    const auto moved = [&](std::string_view name, const Variable& target) {
      const Variable state = step.state(name);
      const Variable next = state + (target - state) * fresh;
      step.assign(state, next);
      return next;
    };
    Variable variance;
    if (p.rank() >= 2) {
      const Variable rows = moved("row_variance", mean(square(g), -1, true));
      const Variable columns = moved("column_variance", mean(square(g), -2, true));
      variance = rows / maximum(mean(rows, -2, true), epsilon1) * columns;
    } else {
      variance = moved("variance", square(g));
    }
    const Variable u = g / sqrt(maximum(variance, epsilon1 * epsilon1));
    const Variable size = alpha / maximum(rms(u) / o_.threshold, 1.0);
    const bool decays = step.decays(o_.weight_decay, o_.decay_vectors);

    step.assign(t, t1);
    step.assign(p, (decays ? p * (1.0 - lr * o_.weight_decay) : p) - size * u);
  }

 private:
  static Variable rms(const Variable& x) { return sqrt(mean(square(x))); }

  AdafactorOptions o_;
};

}  // namespace

Adafactor::Adafactor(const AdafactorOptions& o, std::source_location where)
    : Optimizer(std::make_shared<AdafactorRule>(o), {{"lr", o.lr}}, common_options(o), where) {
  SettingChecks("Adafactor", where)
      .not_negative("lr", o.lr)
      .check(std::isfinite(o.beta2_decay) && o.beta2_decay <= 0, "beta2_decay", o.beta2_decay)
      .not_negative("epsilon1", o.epsilon1)
      .not_negative("epsilon2", o.epsilon2)
      .positive("threshold", o.threshold)
      .not_negative("weight_decay", o.weight_decay);
}

}  // namespace espalier::optim
