#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct AdagradOptions {
  double lr = 0.01;
  double epsilon = 1e-10;
  double initial_accumulator = 0;  ///< s before the first step
  double weight_decay = 0;         ///< adds weight_decay · parameter to the gradient
  bool decay_vectors = true;  ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  double clip_norm = 0;       ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;      ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};     ///< of the learning rate
  bool sparse = false;  ///< rows of a table that a step does not look up stay as they are, with their states
  bool maximize = false;  ///< goes up the gradient
};

/// Adagrad (Duchi et al. 2011): s ← s + g²,  p ← p − lr · g / (√s + ε)
class Adagrad : public Optimizer {
 public:
  Adagrad(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : Adagrad(AdagradOptions{}, where) {}
  Adagrad(LearningRate lr, std::source_location where = std::source_location::current())
      : Adagrad(AdagradOptions{.lr = lr.value}, where) {}
  Adagrad(const AdagradOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
