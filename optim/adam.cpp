#include "espalier/optim/adam.h"

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"

namespace espalier::optim {

namespace {

class AdamRule : public BuiltInRule {
 public:
  explicit AdamRule(const AdamOptions& o) : o_(o) {}
  explicit AdamRule(const AdamWOptions& o)
      : o_{.beta1 = o.beta1,
           .beta2 = o.beta2,
           .epsilon = o.epsilon,
           .weight_decay = o.weight_decay,
           .decay_vectors = o.decay_vectors,
           .amsgrad = o.amsgrad,
           .beta1_schedule = o.beta1_schedule},
        decoupled_(true) {}
  std::string_view name() const override { return decoupled_ ? "AdamW" : "Adam"; }

  void update(ParameterUpdate& step) const override {
    Variable p = step.parameter(), g = step.gradient();
    const bool decays = step.decays(o_.weight_decay, o_.decay_vectors);
    if (decays && !decoupled_) g = g + p * o_.weight_decay;
    const Variable m = step.state("m"), v = step.state("v"), t = step.scalar_state("step");

    const Variable t1 = t + 1.0;
    const bool changes = !o_.beta1_schedule.is_constant();
    const Variable beta1 = changes ? step.setting("beta1") : Variable();
    const Variable m1 = changes ? m * beta1 + g * (1.0 - beta1) : m * o_.beta1 + g * (1 - o_.beta1);
    const Variable v1 = v * o_.beta2 + square(g) * (1 - o_.beta2);
    Variable largest = v1;
    if (o_.amsgrad) {
      const Variable before = step.state("v_max");
      largest = maximum(before, v1);
      step.assign(before, largest);
    }
    // lr · m̂ / (√v̂ + ε), with the bias corrections applied to scalars instead of elements.
    const Variable lr = step.setting("lr");
    const Variable size = lr / (1.0 - (changes ? power(beta1, t1) : power(o_.beta1, t1)));
    const Variable spread = sqrt(largest) / sqrt(1.0 - power(o_.beta2, t1)) + o_.epsilon;

    step.assign(t, t1);
    step.assign(m, m1);
    step.assign(v, v1);
    if (decays && decoupled_) p = p * (1.0 - lr * o_.weight_decay);
    step.assign(step.parameter(), p - size * (m1 / spread));
  }

 private:
  AdamOptions o_;
  bool decoupled_ = false;
};

template <class Options>
void check(const Options& o, std::string_view name, const std::source_location& where) {
  check_setting(std::isfinite(o.lr) && o.lr >= 0, name, "lr", o.lr, where);
  check_setting(o.beta1 >= 0 && o.beta1 < 1, name, "beta1", o.beta1, where);
  check_setting(o.beta2 >= 0 && o.beta2 < 1, name, "beta2", o.beta2, where);
  check_setting(std::isfinite(o.epsilon) && o.epsilon > 0, name, "epsilon", o.epsilon, where);
  check_setting(std::isfinite(o.weight_decay) && o.weight_decay >= 0, name, "weight_decay", o.weight_decay,
                where);
}

}  // namespace

Adam::Adam(const AdamOptions& o, std::source_location where)
    : Optimizer(std::make_shared<AdamRule>(o), settings_with(o.lr, "beta1", o.beta1, o.beta1_schedule),
                common_options(o, "beta1", o.beta1_schedule), where) {
  check(o, "Adam", where);
}

AdamW::AdamW(const AdamWOptions& o, std::source_location where)
    : Optimizer(std::make_shared<AdamRule>(o), settings_with(o.lr, "beta1", o.beta1, o.beta1_schedule),
                common_options(o, "beta1", o.beta1_schedule), where) {
  check(o, "AdamW", where);
}

}  // namespace espalier::optim
