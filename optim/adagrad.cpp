#include "espalier/optim/adagrad.h"

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"

namespace espalier::optim {

namespace {

class AdagradRule : public BuiltInRule {
 public:
  explicit AdagradRule(const AdagradOptions& o)
      : epsilon_(o.epsilon),
        initial_(o.initial_accumulator),
        weight_decay_(o.weight_decay),
        decay_vectors_(o.decay_vectors) {}
  std::string_view name() const override { return "Adagrad"; }

  bool keeps_rows_without_gradient() const override { return weight_decay_ == 0; }
  void update(ParameterUpdate& step) const override {
    const Variable& p = step.parameter();
    Variable g = step.gradient();
    if (step.decays(weight_decay_, decay_vectors_)) g = g + p * weight_decay_;
    const Variable s = step.state("sum", initial_);
    const Variable s1 = s + square(g);
    step.assign(s, s1);
    step.assign(p, p - step.setting("lr") * (g / (sqrt(s1) + epsilon_)));
  }

 private:
  double epsilon_, initial_, weight_decay_;
  bool decay_vectors_;
};

}  // namespace

Adagrad::Adagrad(const AdagradOptions& o, std::source_location where)
    : Optimizer(std::make_shared<AdagradRule>(o), {{"lr", o.lr}}, common_options(o), where) {
  check_setting(std::isfinite(o.lr) && o.lr >= 0, "Adagrad", "lr", o.lr, where);
  check_setting(std::isfinite(o.epsilon) && o.epsilon > 0, "Adagrad", "epsilon", o.epsilon, where);
  check_setting(std::isfinite(o.initial_accumulator) && o.initial_accumulator >= 0, "Adagrad",
                "initial_accumulator", o.initial_accumulator, where);
  check_setting(std::isfinite(o.weight_decay) && o.weight_decay >= 0, "Adagrad", "weight_decay",
                o.weight_decay, where);
}

}  // namespace espalier::optim
