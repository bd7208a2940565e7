#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct AdadeltaOptions {
  double lr = 1;
  double rho = 0.9;
  double epsilon = 1e-6;
  double weight_decay = 0;    ///< adds weight_decay · parameter to the gradient
  bool decay_vectors = true;  ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  double clip_norm = 0;       ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;      ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};     ///< of the learning rate
  bool sparse = false;  ///< rows of a table that a step does not look up stay as they are, with their states
  bool maximize = false;  ///< goes up the gradient
};

/// Adadelta (Zeiler 2012, algorithm 1):
///   s ← ρs + (1 − ρ)g²,  δ = g · √(d + ε) / √(s + ε),  d ← ρd + (1 − ρ)δ²,  p ← p − lr · δ
class Adadelta : public Optimizer {
 public:
  Adadelta(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : Adadelta(AdadeltaOptions{}, where) {}
  Adadelta(LearningRate lr, std::source_location where = std::source_location::current())
      : Adadelta(AdadeltaOptions{.lr = lr.value}, where) {}
  Adadelta(const AdadeltaOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
