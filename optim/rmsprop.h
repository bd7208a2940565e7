#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct RmsPropOptions {
  double lr = 0.01;
  double alpha = 0.99;
  double epsilon = 1e-8;
  double momentum = 0;
  bool centered = false;      ///< divides by the deviation of gradients instead of their root mean square
  double weight_decay = 0;    ///< adds weight_decay · parameter to the gradient
  bool decay_vectors = true;  ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  double clip_norm = 0;       ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;      ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};     ///< of the learning rate
  bool sparse = false;  ///< rows of a table that a step does not look up stay as they are, with their states
  bool maximize = false;  ///< goes up the gradient
};

/// RMSprop (Hinton 2012, in PyTorch's form): v ← αv + (1 − α)g²,  p ← p − lr · g / (√v + ε); with momentum,
/// b ← momentum · b + g / (√v + ε) and p ← p − lr · b. Centered (Graves 2013): a ← αa + (1 − α)g, and v − a²
/// in place of v below the root
class RmsProp : public Optimizer {
 public:
  RmsProp(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : RmsProp(RmsPropOptions{}, where) {}
  RmsProp(LearningRate lr, std::source_location where = std::source_location::current())
      : RmsProp(RmsPropOptions{.lr = lr.value}, where) {}
  RmsProp(const RmsPropOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
