#include "espalier/optim/lion.h"

#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"

namespace espalier::optim {

namespace {

class LionRule : public BuiltInRule {
 public:
  explicit LionRule(const LionOptions& o) : o_(o) {}
  std::string_view name() const override { return "Lion"; }

  void update(ParameterUpdate& step) const override {
    const Variable &p = step.parameter(), &g = step.gradient();
    const Variable m = step.state("m");

    Variable direction = sign(m * o_.beta1 + g * (1 - o_.beta1));
    if (step.decays(o_.weight_decay, o_.decay_vectors)) direction = direction + p * o_.weight_decay;
    step.assign(m, m * o_.beta2 + g * (1 - o_.beta2));
    step.assign(p, p - step.setting("lr") * direction);
  }

 private:
  LionOptions o_;
};

}  // namespace

Lion::Lion(const LionOptions& o, std::source_location where)
    : Optimizer(std::make_shared<LionRule>(o), {{"lr", o.lr}}, common_options(o), where) {
  SettingChecks("Lion", where)
      .not_negative("lr", o.lr)
      .below_one("beta1", o.beta1)
      .below_one("beta2", o.beta2)
      .not_negative("weight_decay", o.weight_decay);
}

}  // namespace espalier::optim
