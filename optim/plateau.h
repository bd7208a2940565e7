// A learning rate that falls when a metric, such as a validation loss, stops improving.
#pragma once
#include <cstdint>
#include <limits>

#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct PlateauOptions {
  double factor = 0.1;      ///< of the learning rate, from 0 to below 1
  int64_t patience = 10;    ///< measurements without improvement that are borne; the next one lowers the rate
  double threshold = 1e-4;  ///< by how much a metric must be better to be an improvement
  bool relative = true;     ///< the threshold is a share of the best metric; false: a difference from it
  int64_t cooldown = 0;     ///< measurements after a fall that are not counted
  double min_lr = 0;
  bool maximize = false;  ///< larger metrics are better, such as an accuracy
};

/// Lowers the learning rate of an optimizer, of Groups that of each group, by measurements:
///
///     optim::ReduceOnPlateau plateau(adam, {.patience = 3});
///     …                                  // after each epoch:
///     plateau.step(validation_loss);
///
/// Plans follow, as they do set_learning_rate. As PyTorch's ReduceLROnPlateau, but for a best metric below 0
/// with a relative threshold: PyTorch then takes slightly worse ones for better.
class ReduceOnPlateau {
 public:
  /// Throws Error for invalid options, and if the optimizer has no setting "lr".
  ReduceOnPlateau(const Optimizer& optimizer, const PlateauOptions& options = {},
                  std::source_location where = std::source_location::current());

  /// Takes a measurement; whether it has lowered a rate. A NaN counts as no improvement.
  bool step(double metric);

  /// What a program saves to go on with later; the rate is a setting of the optimizer, which is saved with
  /// that.
  struct State {
    double best = std::numeric_limits<double>::quiet_NaN();  ///< NaN before the first measurement
    int64_t bad = 0;                                         ///< measurements since an improvement
    int64_t cooldown = 0;  ///< measurements that are not counted yet to come
  };
  const State& state() const { return state_; }
  void set_state(const State& state) { state_ = state; }

 private:
  bool is_better(double metric) const;
  bool reduce();

  Optimizer optimizer_;
  PlateauOptions options_;
  State state_;
};

}  // namespace espalier::optim
