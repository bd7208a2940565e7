#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct NAdamOptions {
  double lr = 2e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double momentum_decay = 4e-3;  ///< ψ below
  double weight_decay = 0;       ///< adds weight_decay · parameter to the gradient
  bool decay_vectors = true;     ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  bool decoupled_weight_decay = false;  ///< true: shrinks parameters by lr · weight_decay instead, as AdamW
  double clip_norm = 0;                 ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;                ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};               ///< of the learning rate
  bool sparse = false;  ///< rows of a table that a step does not look up stay as they are, with their states
  bool maximize = false;  ///< goes up the gradient
};

/// NAdam, Adam with Nesterov's momentum (Dozat 2016, in PyTorch's form):
///   μₜ = β₁(1 − ½ · 0.96^(tψ)),  m and v as Adam's,
///   p ← p − lr · ((1 − μₜ)g / (1 − Πᵢ₌₁ᵗ μᵢ) + μₜ₊₁m / (1 − Πᵢ₌₁ᵗ⁺¹ μᵢ)) / (√v̂ + ε)
class NAdam : public Optimizer {
 public:
  NAdam(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : NAdam(NAdamOptions{}, where) {}
  NAdam(LearningRate lr, std::source_location where = std::source_location::current())
      : NAdam(NAdamOptions{.lr = lr.value}, where) {}
  NAdam(const NAdamOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
