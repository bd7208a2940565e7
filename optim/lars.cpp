#include "espalier/optim/lars.h"

#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"
#include "espalier/optim/trust_ratio.h"

namespace espalier::optim {

namespace {

class LarsRule : public BuiltInRule {
 public:
  explicit LarsRule(const LarsOptions& o) : o_(o) {}
  std::string_view name() const override { return "Lars"; }

  void update(ParameterUpdate& step) const override {
    const Variable &p = step.parameter(), &g = step.gradient();
    const Variable v = step.state("momentum");

    Variable direction = g, size = step.setting("lr");
    const bool decays = step.decays(o_.weight_decay, o_.decay_vectors);
    if (decays) direction = g + p * o_.weight_decay;
    if (o_.adapt_vectors || p.rank() >= 2) {
      const Variable of_p = norm_of(p), of_g = norm_of(g);
      const Variable below = decays ? of_g + of_p * o_.weight_decay : of_g;
      size = size * where(greater(of_g, 0.0), trust_ratio(of_p * o_.trust, below), 1.0);
    }
    const Variable v1 = v * o_.momentum + size * direction;
    step.assign(v, v1);
    step.assign(p, p - v1);
  }

 private:
  LarsOptions o_;
};

}  // namespace

Lars::Lars(const LarsOptions& o, std::source_location where)
    : Optimizer(std::make_shared<LarsRule>(o), {{"lr", o.lr}}, common_options(o), where) {
  SettingChecks("Lars", where)
      .not_negative("lr", o.lr)
      .not_negative("momentum", o.momentum)
      .positive("trust", o.trust)
      .not_negative("weight_decay", o.weight_decay);
}

}  // namespace espalier::optim
