#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct LionOptions {
  double lr = 1e-4;
  double beta1 = 0.9;
  double beta2 = 0.99;
  double weight_decay = 0;    ///< shrinks parameters by lr · weight_decay in each step
  bool decay_vectors = true;  ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  double clip_norm = 0;       ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;      ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};     ///< of the learning rate
  bool sparse = false;  ///< rows of a table that a step does not look up stay as they are, with their states
  bool maximize = false;  ///< goes up the gradient
};

/// Lion (Chen et al., Symbolic discovery of optimization algorithms, 2023, algorithm 2):
///   c = β₁m + (1 − β₁)g,  p ← p − lr · (sign(c) + weight_decay · p),  m ← β₂m + (1 − β₂)g
class Lion : public Optimizer {
 public:
  Lion(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : Lion(LionOptions{}, where) {}
  Lion(LearningRate lr, std::source_location where = std::source_location::current())
      : Lion(LionOptions{.lr = lr.value}, where) {}
  Lion(const LionOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
