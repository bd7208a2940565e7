#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct AdamOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0;    ///< adds weight_decay · parameter to the gradient
  bool decay_vectors = true;  ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  bool amsgrad = false;       ///< divides by the largest v so far
  double clip_norm = 0;       ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;      ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};     ///< of the learning rate
  bool sparse = false;  ///< rows of a table that a step does not look up stay as they are, with their states
  bool maximize = false;         ///< goes up the gradient
  Schedule beta1_schedule = {};  ///< the factor of β₁, which is then a setting, "beta1"
};

/// Adam (Kingma & Ba 2015, algorithm 1):
///   m ← β₁m + (1 − β₁)g,  v ← β₂v + (1 − β₂)g²,  p ← p − lr · m̂ / (√v̂ + ε),
///   m̂ = m / (1 − β₁ᵗ),  v̂ = v / (1 − β₂ᵗ)
/// With amsgrad (Reddi et al. 2018, in PyTorch's form) v̂ = max(v₁, …, vₜ) / (1 − β₂ᵗ).
class Adam : public Optimizer {
 public:
  Adam(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : Adam(AdamOptions{}, where) {}
  Adam(LearningRate lr, std::source_location where = std::source_location::current())
      : Adam(AdamOptions{.lr = lr.value}, where) {}
  Adam(const AdamOptions& options, std::source_location where = std::source_location::current());
};

struct AdamWOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  ///< shrinks parameters by lr · weight_decay in each step
  bool decay_vectors = true;   ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  bool amsgrad = false;        ///< divides by the largest v so far
  double clip_norm = 0;        ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;       ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};      ///< of the learning rate
  bool sparse = false;  ///< rows of a table that a step does not look up stay as they are, with their states
  bool maximize = false;         ///< goes up the gradient
  Schedule beta1_schedule = {};  ///< the factor of β₁, which is then a setting, "beta1"
};

/// Adam with decoupled weight decay (Loshchilov & Hutter 2019): before Adam's step,
///   p ← p − lr · weight_decay · p
class AdamW : public Optimizer {
 public:
  AdamW(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : AdamW(AdamWOptions{}, where) {}
  AdamW(LearningRate lr, std::source_location where = std::source_location::current())
      : AdamW(AdamWOptions{.lr = lr.value}, where) {}
  AdamW(const AdamWOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
