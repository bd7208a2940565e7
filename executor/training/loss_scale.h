// Loss scaling: training in float16 without losing small gradients (Micikevicius et al., Mixed precision
// training, 2018).
#pragma once
#include "espalier/optim/clip.h"
#include "espalier/optim/optimizer.h"

namespace espalier {

/// The loss is multiplied by a factor, so that its gradients fit into float16, and the gradients are divided
/// by it before the optimizer reads them. A step in which a gradient is not finite changes only the factor.
/// All of this is part of the tree, and the factor is a state, which checkpoints contain.
class LossScale {
 public:
  /// Powers of two, so that scaling is exact.
  static constexpr double initial = 65536, largest = 0x1p24, least = 0x1p-24;
  static constexpr double good_steps_until_doubled = 2000;
  /// So many steps whose gradients are not finite bring any factor to the least.
  static constexpr int64_t steps_to_least = 48;
  static_assert(largest / (int64_t{1} << steps_to_least) == least);

  /// The factor and the count of good steps are on this device, that of the loss.
  explicit LossScale(Device device);
  /// One whose factor and count are these leaves, on which updates were built before.
  LossScale(Variable factor, Variable good_steps)
      : factor_(std::move(factor)), good_steps_(std::move(good_steps)) {}
  /// New nodes for the gradients of the scaled loss.
  optim::ParameterGradients gradients(const Variable& loss) const;
  /// The updates of all parameters, from these gradients, and of the factor. Sets `finite`, whether all
  /// gradients are. `by_rows`: see Optimizer::build.
  std::vector<Variable> updates(optim::ParameterGradients gradients, const optim::Optimizer& optimizer,
                                Variable& finite, bool by_rows) const;
  const Variable& factor() const { return factor_; }
  const Variable& good_steps() const { return good_steps_; }

 private:
  Variable factor_, good_steps_;
};

}  // namespace espalier
