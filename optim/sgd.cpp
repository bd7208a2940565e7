#include "espalier/optim/sgd.h"

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"

namespace espalier::optim {

namespace {

class SgdRule : public BuiltInRule {
 public:
  explicit SgdRule(const SgdOptions& o)
      : momentum_(o.momentum),
        momentum_changes_(!o.momentum_schedule.is_constant()),
        nesterov_(o.nesterov),
        dampening_(o.dampening),
        weight_decay_(o.weight_decay),
        decay_vectors_(o.decay_vectors) {}
  std::string_view name() const override { return "Sgd"; }

  bool keeps_rows_without_gradient() const override { return momentum_ == 0 && weight_decay_ == 0; }
  void update(ParameterUpdate& step) const override {
    const Variable& p = step.parameter();
    Variable g = step.gradient();
    if (step.decays(weight_decay_, decay_vectors_)) g = g + p * weight_decay_;
    if (momentum_ > 0) {
      const Variable v = step.state("momentum");
      const auto kept = [&](const Variable& x) {
        return momentum_changes_ ? x * step.setting("momentum") : x * momentum_;
      };
      const Variable next = kept(v) + (dampening_ > 0 ? dampened(step, g) : g);
      step.assign(v, next);
      g = nesterov_ ? g + kept(next) : next;
    }
    step.assign(p, p - step.setting("lr") * g);
  }

 private:
  /// The whole gradient in the first step, (1 − dampening) of it later.
  Variable dampened(ParameterUpdate& step, const Variable& g) const {
    const Variable t = step.scalar_state("step");
    const Variable t1 = t + 1.0;
    step.assign(t, t1);
    return g * (1.0 - cast(greater(t1, 1.0), t.dtype()) * dampening_);
  }

  double momentum_;
  bool momentum_changes_;
  bool nesterov_;
  double dampening_;
  double weight_decay_;
  bool decay_vectors_;
};

}  // namespace

Sgd::Sgd(const SgdOptions& o, std::source_location where)
    : Optimizer(std::make_shared<SgdRule>(o),
                settings_with(o.lr, "momentum", o.momentum, o.momentum_schedule),
                common_options(o, "momentum", o.momentum_schedule), where) {
  check_setting(std::isfinite(o.lr) && o.lr >= 0, "Sgd", "lr", o.lr, where);
  check_setting(std::isfinite(o.momentum) && o.momentum >= 0, "Sgd", "momentum", o.momentum, where);
  check_setting(std::isfinite(o.weight_decay) && o.weight_decay >= 0, "Sgd", "weight_decay", o.weight_decay,
                where);
  check_setting(o.dampening >= 0 && o.dampening <= 1, "Sgd", "dampening", o.dampening, where);
  check_setting(!o.nesterov || o.dampening == 0, "Sgd with nesterov", "dampening", o.dampening, where);
  check_setting(o.momentum_schedule.is_constant() || o.momentum > 0, "Sgd with momentum_schedule", "momentum",
                o.momentum, where);
  check_setting(!o.nesterov || o.momentum > 0, "Sgd with nesterov", "momentum", o.momentum, where);
}

}  // namespace espalier::optim
