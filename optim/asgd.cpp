#include "espalier/optim/asgd.h"

#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"

namespace espalier::optim {

namespace {

class AsgdRule : public BuiltInRule {
 public:
  explicit AsgdRule(const AsgdOptions& o) : o_(o) {}
  std::string_view name() const override { return "Asgd"; }

  void update(ParameterUpdate& step) const override {
    const Variable& p = step.parameter();
    Variable g = step.gradient();
    if (step.decays(o_.weight_decay, o_.decay_vectors)) g = g + p * o_.weight_decay;
    const Variable a = step.state("average"), t = step.scalar_state("step"), lr = step.setting("lr");

    const Variable t1 = t + 1.0, before = t1 - 1.0;  // what reads t1 is one fused program with it
    const Variable eta = lr / power(1.0 + o_.lambda * lr * before, o_.alpha);
    const Variable p1 = p * (1.0 - o_.lambda * eta) - eta * g;
    step.assign(t, t1);
    step.assign(a, a + (p1 - a) / maximum(before - o_.t0, 1.0));
    step.assign(p, p1);
  }

 private:
  AsgdOptions o_;
};

}  // namespace

Asgd::Asgd(const AsgdOptions& o, std::source_location where)
    : Optimizer(std::make_shared<AsgdRule>(o), {{"lr", o.lr}}, common_options(o), where) {
  SettingChecks("Asgd", where)
      .not_negative("lr", o.lr)
      .not_negative("lambda", o.lambda)
      .not_negative("alpha", o.alpha)
      .not_negative("t0", o.t0)
      .not_negative("weight_decay", o.weight_decay);
}

}  // namespace espalier::optim
