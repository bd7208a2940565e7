#include "espalier/optim/adamax.h"

#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"

namespace espalier::optim {

namespace {

class AdamaxRule : public BuiltInRule {
 public:
  explicit AdamaxRule(const AdamaxOptions& o) : o_(o) {}
  std::string_view name() const override { return "Adamax"; }

  void update(ParameterUpdate& step) const override {
    const Variable& p = step.parameter();
    Variable g = step.gradient();
    if (step.decays(o_.weight_decay, o_.decay_vectors)) g = g + p * o_.weight_decay;
    const Variable m = step.state("m"), u = step.state("u"), t = step.scalar_state("step");

    const Variable t1 = t + 1.0;
    const Variable m1 = m * o_.beta1 + g * (1 - o_.beta1);
    const Variable u1 = maximum(u * o_.beta2, abs(g) + o_.epsilon);
    step.assign(t, t1);
    step.assign(m, m1);
    step.assign(u, u1);
    step.assign(p, p - step.setting("lr") / (1.0 - power(o_.beta1, t1)) * (m1 / u1));
  }

 private:
  AdamaxOptions o_;
};

}  // namespace

Adamax::Adamax(const AdamaxOptions& o, std::source_location where)
    : Optimizer(std::make_shared<AdamaxRule>(o), {{"lr", o.lr}}, common_options(o), where) {
  SettingChecks("Adamax", where)
      .not_negative("lr", o.lr)
      .below_one("beta1", o.beta1)
      .below_one("beta2", o.beta2)
      .positive("epsilon", o.epsilon)
      .not_negative("weight_decay", o.weight_decay);
}

}  // namespace espalier::optim
