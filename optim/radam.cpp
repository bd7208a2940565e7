#include "espalier/optim/radam.h"

#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"

namespace espalier::optim {

namespace {

class RAdamRule : public BuiltInRule {
 public:
  explicit RAdamRule(const RAdamOptions& o) : o_(o) {}
  std::string_view name() const override { return "RAdam"; }

  void update(ParameterUpdate& step) const override {
    Variable p = step.parameter(), g = step.gradient();
    const Variable lr = step.setting("lr");
    if (step.decays(o_.weight_decay, o_.decay_vectors)) {
      if (o_.decoupled_weight_decay)
        p = p * (1.0 - lr * o_.weight_decay);
      else
        g = g + p * o_.weight_decay;
    }
    const Variable m = step.state("m"), v = step.state("v"), t = step.scalar_state("step");

    const Variable t1 = t + 1.0;
    const Variable m1 = m * o_.beta1 + g * (1 - o_.beta1);
    const Variable v1 = v * o_.beta2 + square(g) * (1 - o_.beta2);
    const Variable wide = cast(t1, DType::float64);  // ρ is a small difference of large numbers
    const Variable left = 1.0 - power(o_.beta2, wide);
    const double most = 2 / (1 - o_.beta2) - 1;
    const Variable rho = most - 2.0 * wide * power(o_.beta2, wide) / left;
    const Variable rectified = greater(rho, 5.0);
    const Variable r = maximum(rho, 5.0);
    const Variable scale = sqrt((r - 4.0) * (r - 2.0) * most / ((most - 4) * (most - 2) * r) * left);

    step.assign(t, t1);
    step.assign(m, m1);
    step.assign(v, v1);
    const Variable size = lr / (1.0 - power(o_.beta1, t1));
    const Variable factor = where(rectified, cast(scale, v1.dtype()) / (sqrt(v1) + o_.epsilon), 1.0);
    step.assign(step.parameter(), p - size * (m1 * factor));
  }

 private:
  RAdamOptions o_;
};

}  // namespace

RAdam::RAdam(const RAdamOptions& o, std::source_location where)
    : Optimizer(std::make_shared<RAdamRule>(o), {{"lr", o.lr}}, common_options(o), where) {
  SettingChecks("RAdam", where)
      .not_negative("lr", o.lr)
      .below_one("beta1", o.beta1)
      .below_one("beta2", o.beta2)
      .positive("epsilon", o.epsilon)
      .not_negative("weight_decay", o.weight_decay);
}

}  // namespace espalier::optim
