#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct SgdOptions {
  double lr = 0.01;
  double momentum = 0;
  bool nesterov = false;
  double weight_decay = 0;  ///< adds weight_decay · parameter to the gradient
};

/// Stochastic gradient descent: p ← p − lr · g; with momentum, v ← momentum · v + g and p ← p − lr · v
/// (Sutskever et al. 2013, in PyTorch's form). Throws Error for settings that make no sense.
class Sgd : public Optimizer {
 public:
  Sgd(LearningRate lr, std::source_location where = std::source_location::current())
      : Sgd(SgdOptions{.lr = lr.value}, where) {}
  Sgd(const SgdOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
