// The buffers of layers that keep a running mean and variance. For writers of layers.
#pragma once
#include <optional>

#include "espalier/nn/layer_state.h"

namespace espalier::nn {

/// Declares `running_mean`, `running_var` [-1] and `num_batches_tracked`, and moves them.
class RunningStatistics : public LayerState {
 public:
  std::optional<double> momentum() const { return momentum_; }
  void set_momentum(std::optional<double> momentum) { momentum_ = momentum; }
  /// The buffers are those of no step.
  void restart();

 protected:
  using LayerState::LayerState;

  /// `momentum` is how far they move in a step; empty: they are means over all steps. Throws Error unless it
  /// is from 0 to 1.
  void declare_statistics(std::optional<double> momentum);
  /// `y`, and each step moves the statistics to these, of any shape with the elements of the buffers.
  Variable tracking(const Variable& y, const Variable& mean, const Variable& variance) const;

 private:
  std::optional<double> momentum_;
};

}  // namespace espalier::nn
