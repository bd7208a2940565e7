#include "espalier/optim/nadam.h"

#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"

namespace espalier::optim {

namespace {

class NAdamRule : public BuiltInRule {
 public:
  explicit NAdamRule(const NAdamOptions& o) : o_(o) {}
  std::string_view name() const override { return "NAdam"; }

  void update(ParameterUpdate& step) const override {
    Variable p = step.parameter(), g = step.gradient();
    const Variable lr = step.setting("lr");
    if (step.decays(o_.weight_decay, o_.decay_vectors)) {
      if (o_.decoupled_weight_decay)
        p = p * (1.0 - lr * o_.weight_decay);
      else
        g = g + p * o_.weight_decay;
    }
    const Variable m = step.state("m"), v = step.state("v"), t = step.scalar_state("step"),
                   product = step.scalar_state("mu_product", 1);

    const Variable t1 = t + 1.0, mu = mu_at(t1), mu_next = mu_at(t1 + 1.0);
    const Variable product1 = product * mu;
    const Variable m1 = m * o_.beta1 + g * (1 - o_.beta1);
    const Variable v1 = v * o_.beta2 + square(g) * (1 - o_.beta2);
    const Variable spread = sqrt(v1) / sqrt(1.0 - power(o_.beta2, t1)) + o_.epsilon;
    const Variable of_g = lr * (1.0 - mu) / (1.0 - product1);
    const Variable of_m = lr * mu_next / (1.0 - product1 * mu_next);

    step.assign(t, t1);
    step.assign(product, product1);
    step.assign(m, m1);
    step.assign(v, v1);
    step.assign(step.parameter(), p - (of_g * g + of_m * m1) / spread);
  }

 private:
  Variable mu_at(const Variable& t) const {
    return o_.beta1 * (1.0 - 0.5 * power(0.96, t * o_.momentum_decay));
  }

  NAdamOptions o_;
};

}  // namespace

NAdam::NAdam(const NAdamOptions& o, std::source_location where)
    : Optimizer(std::make_shared<NAdamRule>(o), {{"lr", o.lr}}, common_options(o), where) {
  SettingChecks("NAdam", where)
      .not_negative("lr", o.lr)
      .below_one("beta1", o.beta1)
      .below_one("beta2", o.beta2)
      .positive("epsilon", o.epsilon)
      .not_negative("momentum_decay", o.momentum_decay)
      .not_negative("weight_decay", o.weight_decay);
}

}  // namespace espalier::optim
