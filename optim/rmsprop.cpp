#include "espalier/optim/rmsprop.h"

#include <cmath>

#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"

namespace espalier::optim {

namespace {

class RmsPropRule : public BuiltInRule {
 public:
  explicit RmsPropRule(const RmsPropOptions& o)
      : alpha_(o.alpha),
        epsilon_(o.epsilon),
        momentum_(o.momentum),
        centered_(o.centered),
        weight_decay_(o.weight_decay),
        decay_vectors_(o.decay_vectors) {}
  std::string_view name() const override { return "RmsProp"; }

  void update(ParameterUpdate& step) const override {
    const Variable& p = step.parameter();
    Variable g = step.gradient();
    if (step.decays(weight_decay_, decay_vectors_)) g = g + p * weight_decay_;
    const Variable v = step.state("square");
    const Variable v1 = v * alpha_ + square(g) * (1 - alpha_);
    step.assign(v, v1);
    Variable variance = v1;
    if (centered_) {
      const Variable a = step.state("mean");
      const Variable a1 = a * alpha_ + g * (1 - alpha_);
      step.assign(a, a1);
      variance = maximum(v1 - square(a1), 0.0);  // rounding must not make it negative
    }
    Variable direction = g / (sqrt(variance) + epsilon_);
    if (momentum_ > 0) {
      const Variable b = step.state("momentum");
      direction = b * momentum_ + direction;
      step.assign(b, direction);
    }
    step.assign(p, p - step.setting("lr") * direction);
  }

 private:
  double alpha_, epsilon_, momentum_;
  bool centered_;
  double weight_decay_;
  bool decay_vectors_;
};

}  // namespace

RmsProp::RmsProp(const RmsPropOptions& o, std::source_location where)
    : Optimizer(std::make_shared<RmsPropRule>(o), {{"lr", o.lr}}, common_options(o), where) {
  check_setting(std::isfinite(o.lr) && o.lr >= 0, "RmsProp", "lr", o.lr, where);
  check_setting(o.alpha >= 0 && o.alpha < 1, "RmsProp", "alpha", o.alpha, where);
  check_setting(std::isfinite(o.epsilon) && o.epsilon > 0, "RmsProp", "epsilon", o.epsilon, where);
  check_setting(std::isfinite(o.momentum) && o.momentum >= 0, "RmsProp", "momentum", o.momentum, where);
  check_setting(std::isfinite(o.weight_decay) && o.weight_decay >= 0, "RmsProp", "weight_decay",
                o.weight_decay, where);
}

}  // namespace espalier::optim
