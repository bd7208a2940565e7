#include "espalier/optim/lamb.h"

#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"
#include "espalier/optim/trust_ratio.h"

namespace espalier::optim {

namespace {

class LambRule : public BuiltInRule {
 public:
  explicit LambRule(const LambOptions& o) : o_(o) {}
  std::string_view name() const override { return "Lamb"; }

  void update(ParameterUpdate& step) const override {
    const Variable &p = step.parameter(), &g = step.gradient();
    const Variable m = step.state("m"), v = step.state("v"), t = step.scalar_state("step");

    const Variable t1 = t + 1.0;
    const Variable m1 = m * o_.beta1 + g * (1 - o_.beta1);
    const Variable v1 = v * o_.beta2 + square(g) * (1 - o_.beta2);
    const Variable m_hat = m1 / (1.0 - power(o_.beta1, t1)), v_hat = v1 / (1.0 - power(o_.beta2, t1));
    Variable u = m_hat / (sqrt(v_hat) + o_.epsilon);
    if (step.decays(o_.weight_decay, o_.decay_vectors)) u = u + p * o_.weight_decay;
    Variable size = step.setting("lr");
    if (o_.adapt_vectors || p.rank() >= 2) size = size * trust_ratio(norm_of(p), norm_of(u));

    step.assign(t, t1);
    step.assign(m, m1);
    step.assign(v, v1);
    step.assign(p, p - size * u);
  }

 private:
  LambOptions o_;
};

}  // namespace

Lamb::Lamb(const LambOptions& o, std::source_location where)
    : Optimizer(std::make_shared<LambRule>(o), {{"lr", o.lr}}, common_options(o), where) {
  SettingChecks("Lamb", where)
      .not_negative("lr", o.lr)
      .below_one("beta1", o.beta1)
      .below_one("beta2", o.beta2)
      .positive("epsilon", o.epsilon)
      .not_negative("weight_decay", o.weight_decay);
}

}  // namespace espalier::optim
