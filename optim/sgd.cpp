#include "espalier/optim/sgd.h"

#include <cmath>

#include "espalier/core/error.h"

namespace espalier::optim {

namespace {

class SgdRule : public UpdateRule {
 public:
  explicit SgdRule(const SgdOptions& o)
      : momentum_(o.momentum),
        nesterov_(o.nesterov),
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
      const Variable next = v * momentum_ + g;
      step.assign(v, next);
      g = nesterov_ ? g + next * momentum_ : next;
    }
    step.assign(p, p - step.setting("lr") * g);
  }

 private:
  double momentum_;
  bool nesterov_;
  double weight_decay_;
  bool decay_vectors_;
};

}  // namespace

Sgd::Sgd(const SgdOptions& o, std::source_location where)
    : Optimizer(std::make_shared<SgdRule>(o), {{"lr", o.lr}},
                {o.clip_norm, o.clip_value, o.schedule, o.sparse}, where) {
  check_setting(std::isfinite(o.lr) && o.lr >= 0, "Sgd", "lr", o.lr, where);
  check_setting(std::isfinite(o.momentum) && o.momentum >= 0, "Sgd", "momentum", o.momentum, where);
  check_setting(std::isfinite(o.weight_decay) && o.weight_decay >= 0, "Sgd", "weight_decay", o.weight_decay,
                where);
  check_setting(!o.nesterov || o.momentum > 0, "Sgd with nesterov", "momentum", o.momentum, where);
}

}  // namespace espalier::optim
