// Loss scaling: training in float16 without losing small gradients (Micikevicius et al., Mixed precision
// training, 2018).
#pragma once
#include "espalier/optim/clip.h"
#include "espalier/optim/optimizer.h"

namespace espalier {

/// Gradients are computed of the loss times a factor, so that float16 can hold them, and divided by it before
/// the optimizer sees them. A step in which one is not finite changes nothing but the factor. All of it is
/// tree, and the factor a state: plans run and checkpoints keep it like all else.
class LossScale {
 public:
  /// Powers of two, which round nothing.
  static constexpr double initial = 65536, largest = 0x1p24, least = 0x1p-24;
  static constexpr double good_steps_until_doubled = 2000;

  /// Factor and count are on the loss's device.
  explicit LossScale(Device device);
  /// The gradients of the scaled loss, as new nodes.
  optim::ParameterGradients gradients(const Variable& loss) const;
  /// The updates that these lead to, of all parameters and of the factor.
  std::vector<Variable> updates(optim::ParameterGradients gradients, const optim::Optimizer& optimizer) const;
  const Variable& factor() const { return factor_; }

 private:
  Variable factor_, good_steps_;
};

}  // namespace espalier
