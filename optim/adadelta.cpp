#include "espalier/optim/adadelta.h"

#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"

namespace espalier::optim {

namespace {

class AdadeltaRule : public BuiltInRule {
 public:
  explicit AdadeltaRule(const AdadeltaOptions& o) : o_(o) {}
  std::string_view name() const override { return "Adadelta"; }

  void update(ParameterUpdate& step) const override {
    const Variable& p = step.parameter();
    Variable g = step.gradient();
    if (step.decays(o_.weight_decay, o_.decay_vectors)) g = g + p * o_.weight_decay;
    const Variable s = step.state("square"), d = step.state("delta_square");

    const Variable s1 = s * o_.rho + square(g) * (1 - o_.rho);
    const Variable delta = sqrt(d + o_.epsilon) / sqrt(s1 + o_.epsilon) * g;
    step.assign(s, s1);
    step.assign(d, d * o_.rho + square(delta) * (1 - o_.rho));
    step.assign(p, p - step.setting("lr") * delta);
  }

 private:
  AdadeltaOptions o_;
};

}  // namespace

Adadelta::Adadelta(const AdadeltaOptions& o, std::source_location where)
    : Optimizer(std::make_shared<AdadeltaRule>(o), {{"lr", o.lr}}, common_options(o), where) {
  SettingChecks("Adadelta", where)
      .not_negative("lr", o.lr)
      .below_one("rho", o.rho)
      .positive("epsilon", o.epsilon)
      .not_negative("weight_decay", o.weight_decay);
}

}  // namespace espalier::optim
