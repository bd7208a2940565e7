#include "espalier/optim/rprop.h"

#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"

namespace espalier::optim {

namespace {

class RpropRule : public BuiltInRule {
 public:
  explicit RpropRule(const RpropOptions& o) : o_(o) {}
  std::string_view name() const override { return "Rprop"; }

  void update(ParameterUpdate& step) const override {
    const Variable &p = step.parameter(), &g = step.gradient();
    const Variable before = step.state("gradient"), s = step.state("step_size", o_.lr);

    const Variable agreement = g * before;
    const Variable turned = less(agreement, 0.0);
    const Variable next = where(greater(agreement, 0.0), s * o_.grow, where(turned, s * o_.shrink, s));
    const Variable s1 = minimum(maximum(next, o_.smallest), o_.largest);
    const Variable g1 = where(turned, 0.0, g);
    step.assign(before, g1);
    step.assign(s, s1);
    step.assign(p, p - sign(g1) * s1);
  }

 private:
  RpropOptions o_;
};

}  // namespace

Rprop::Rprop(const RpropOptions& o, std::source_location where)
    : Optimizer(std::make_shared<RpropRule>(o), {}, common_options(o), where) {
  SettingChecks("Rprop", where)
      .positive("lr", o.lr)
      .check(o.shrink > 0 && o.shrink < 1, "shrink", o.shrink)
      .check(std::isfinite(o.grow) && o.grow > 1, "grow", o.grow)
      .positive("smallest", o.smallest)
      .check(std::isfinite(o.largest) && o.largest >= o.smallest, "largest", o.largest);
}

}  // namespace espalier::optim
