#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct RAdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;    ///< adds weight_decay · parameter to the gradient
  bool decay_vectors = true;  ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  bool decoupled_weight_decay = false;  ///< true: shrinks parameters by lr · weight_decay instead, as AdamW
  double clip_norm = 0;                 ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;                ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};               ///< of the learning rate
  bool sparse = false;  ///< rows of a table that a step does not look up stay as they are, with their states
  bool maximize = false;  ///< goes up the gradient
};

/// RAdam, Adam with a rectified variance (Liu et al. 2020, algorithm 2, in PyTorch's form): m̂ and v as
/// Adam's,
///   ρ∞ = 2 / (1 − β₂) − 1,  ρ = ρ∞ − 2tβ₂ᵗ / (1 − β₂ᵗ),
///   r = √((ρ − 4)(ρ − 2)ρ∞ / ((ρ∞ − 4)(ρ∞ − 2)ρ)),
///   p ← p − lr · r · m̂ · √(1 − β₂ᵗ) / (√v + ε) if ρ > 5, else p ← p − lr · m̂
class RAdam : public Optimizer {
 public:
  RAdam(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : RAdam(RAdamOptions{}, where) {}
  RAdam(LearningRate lr, std::source_location where = std::source_location::current())
      : RAdam(RAdamOptions{.lr = lr.value}, where) {}
  RAdam(const RAdamOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
