#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct AsgdOptions {
  double lr = 0.01;
  double lambda = 1e-4;       ///< of the decay of the rate and of the parameters
  double alpha = 0.75;        ///< the power of the decay of the rate
  double t0 = 1e6;            ///< the number of steps after which averaging begins
  double weight_decay = 0;    ///< adds weight_decay · parameter to the gradient
  bool decay_vectors = true;  ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  double clip_norm = 0;       ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;      ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};     ///< of lr
  bool maximize = false;      ///< goes up the gradient
};

/// Averaged stochastic gradient descent (Polyak and Juditsky 1992, in PyTorch's form), with t steps before:
///   η = lr / (1 + λ · lr · t)^α,  p ← (1 − λη)p − ηg,  a ← a + (p − a) / max(1, t − t₀)
/// The state "average" is a; UseAverages lets a network compute with it.
class Asgd : public Optimizer {
 public:
  Asgd(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : Asgd(AsgdOptions{}, where) {}
  Asgd(LearningRate lr, std::source_location where = std::source_location::current())
      : Asgd(AsgdOptions{.lr = lr.value}, where) {}
  Asgd(const AsgdOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
