#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct RpropOptions {
  double lr = 0.01;  ///< the first step of every element; no setting, since later steps do not depend on it
  double shrink = 0.5;     ///< η⁻, the factor of a step where the gradient's sign has changed
  double grow = 1.2;       ///< η⁺, its factor where it has not
  double smallest = 1e-6;  ///< the smallest step
  double largest = 50;     ///< the largest step
  double clip_norm = 0;    ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;   ///< the largest size of one element of a gradient; 0: any
  bool sparse = false;  ///< rows of a table that a step does not look up stay as they are, with their states
  bool maximize = false;  ///< goes up the gradient
};

/// Resilient backpropagation (Riedmiller and Braun 1993, in PyTorch's form), for whole batches. Every element
/// has a step s of its own, and g₀ is the gradient before:
///   g · g₀ > 0: s ← min(η⁺s, largest);  g · g₀ < 0: s ← max(η⁻s, smallest), g ← 0;  p ← p − sign(g) · s
class Rprop : public Optimizer {
 public:
  Rprop(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : Rprop(RpropOptions{}, where) {}
  Rprop(LearningRate lr, std::source_location where = std::source_location::current())
      : Rprop(RpropOptions{.lr = lr.value}, where) {}
  Rprop(const RpropOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
