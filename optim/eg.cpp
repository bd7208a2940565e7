#include "espalier/optim/eg.h"

#include <fmt/format.h>
#include "espalier/ops/ops.h"
#include "espalier/optim/rule.h"

#include "espalier/core/error.h"
#include "espalier/core/node.h"

namespace espalier::optim {

namespace {

class EgRule : public BuiltInRule {
 public:
  explicit EgRule(const EgOptions& o) : o_(o) {}
  std::string_view name() const override { return "Eg"; }

  void update(ParameterUpdate& step) const override {
    const Variable& p = step.parameter();
    check_signs(p);
    Variable v = step.setting("lr") * -step.gradient();
    if (o_.momentum > 0) {
      const Variable before = step.state("momentum");
      v = before * o_.momentum + v;
      step.assign(before, v);
    }
    const Variable logits = reshape(log(p) + v, {p.shape().elements()});
    step.assign(p, reshape(softmax(logits), p.shape()));
  }

 private:
  static void check_signs(const Variable& p) {
    if (!p.node()->is_leaf()) return;  // a cast 16-bit parameter
    const Tensor values = p.value().to(cpu()).to(DType::float64).contiguous_copy();
    for (const double value : values.span<double>())
      if (!(value >= 0))
        throw Error(fmt::format(
            "Eg: the parameter '{}' of shape {} has an element {}; exponentiated gradients update "
            "probabilities, so start from positive numbers",
            p.node()->op().name(), p.shape().str(), value));
  }

  EgOptions o_;
};

}  // namespace

Eg::Eg(const EgOptions& o, std::source_location where)
    : Optimizer(std::make_shared<EgRule>(o), {{"lr", o.lr}}, common_options(o), where) {
  SettingChecks("Eg", where).not_negative("lr", o.lr).not_negative("momentum", o.momentum);
}

}  // namespace espalier::optim
