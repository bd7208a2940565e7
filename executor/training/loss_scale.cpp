#include "espalier/executor/training/loss_scale.h"

#include "espalier/core/autograd.h"
#include "espalier/ops/indexing/rows.h"
#include "espalier/ops/ops.h"

namespace espalier {

namespace {

Variable as(const Variable& x, DType dtype) { return x.dtype() == dtype ? x : cast(x, dtype); }

/// Whether every element of every gradient is finite: only then is 0 · x equal to 0.
Variable all_finite(const optim::ParameterGradients& gradients, const optim::Optimizer& optimizer,
                    bool by_rows) {
  Variable total;
  for (const auto& [parameter, gradient] : gradients) {
    const Variable values =
        optimizer.reads_rows(parameter, gradient, by_rows) ? row_gradient(gradient).values : gradient;
    const Variable own = as(sum(values * 0.0), DType::float32);
    total = total.defined() ? total + own.to(total.device()) : own;
  }
  return equal(total, 0.0);
}

}  // namespace

LossScale::LossScale(Device device)
    : factor_(espalier::state(full({}, initial).to(device), "loss_scale")),
      good_steps_(espalier::state(full({}, 0).to(device), "good_steps")) {}

optim::ParameterGradients LossScale::gradients(const Variable& loss) const {
  return new_parameter_gradients(loss * as(factor_, loss.dtype()));
}

std::vector<Variable> LossScale::updates(optim::ParameterGradients gradients,
                                         const optim::Optimizer& optimizer, Variable& finite,
                                         bool by_rows) const {
  BuildContext now = build_context();
  now.tag = Tag::update;
  now.no_grad = true;
  now.where = &gradients.front().first.node()->where;
  const BuildScope scope(now);
  finite = all_finite(gradients, optimizer, by_rows).to(factor_.device());
  const Variable inverse = 1.0 / factor_;
  for (auto& [parameter, gradient] : gradients) {
    const Variable scale = as(inverse, gradient.dtype()).to(gradient.device());
    const bool rows = optimizer.reads_rows(parameter, gradient, by_rows);
    gradient = rows ? scaled_row_gradient(gradient, scale) : gradient * scale;
  }

  const Variable steps = good_steps_ + 1.0, enough = greater_equal(steps, good_steps_until_doubled);
  const Variable good = where(enough, minimum(factor_ * 2.0, largest), factor_);
  const Variable next = where(finite, good, maximum(factor_ * 0.5, least));
  const Variable next_steps = where(logical_and(finite, logical_not(enough)), steps, 0.0);

  std::vector<Variable> updates = optimizer.build(gradients, finite, by_rows);
  updates.push_back(optim::assignment(factor_, next));
  updates.push_back(optim::assignment(good_steps_, next_steps));
  return updates;
}

}  // namespace espalier
