#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct AdamaxOptions {
  double lr = 2e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;    ///< adds weight_decay · parameter to the gradient
  bool decay_vectors = true;  ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  double clip_norm = 0;       ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;      ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};     ///< of the learning rate
  bool sparse = false;  ///< rows of a table that a step does not look up stay as they are, with their states
  bool maximize = false;  ///< goes up the gradient
};

/// Adamax (Kingma and Ba 2015, algorithm 2, in PyTorch's form):
///   m ← β₁m + (1 − β₁)g,  u ← max(β₂u, |g| + ε),  p ← p − lr / (1 − β₁ᵗ) · m / u
class Adamax : public Optimizer {
 public:
  Adamax(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : Adamax(AdamaxOptions{}, where) {}
  Adamax(LearningRate lr, std::source_location where = std::source_location::current())
      : Adamax(AdamaxOptions{.lr = lr.value}, where) {}
  Adamax(const AdamaxOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
