#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct SgdOptions {
  double lr = 0.01;
  double momentum = 0;
  bool nesterov = false;
  double dampening = 0;       ///< after the first step, v grows by (1 − dampening) · g; not with nesterov
  double weight_decay = 0;    ///< adds weight_decay · parameter to the gradient
  bool decay_vectors = true;  ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  double clip_norm = 0;       ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;      ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};     ///< of the learning rate
  bool sparse = false;  ///< rows of a table that a step does not look up stay as they are, with their states
  bool maximize = false;            ///< goes up the gradient
  Schedule momentum_schedule = {};  ///< the factor of the momentum, which is then a setting, "momentum"
};

/// Stochastic gradient descent: p ← p − lr · g; with momentum, v ← momentum · v + g and p ← p − lr · v, or
/// with nesterov p ← p − lr · (g + momentum · v) (Sutskever et al. 2013, in PyTorch's form). Throws Error for
/// invalid settings.
class Sgd : public Optimizer {
 public:
  Sgd(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : Sgd(SgdOptions{}, where) {}
  Sgd(LearningRate lr, std::source_location where = std::source_location::current())
      : Sgd(SgdOptions{.lr = lr.value}, where) {}
  Sgd(const SgdOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
