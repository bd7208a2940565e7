#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct AdafactorOptions {
  double lr = 0.01;           ///< the largest relative step
  double beta2_decay = -0.8;  ///< τ below
  double epsilon1 = 0;        ///< keeps variances from 0; 0: the difference of 1 and the next larger number
  double epsilon2 = 1e-3;     ///< the least size of a parameter
  double threshold = 1;       ///< d below: the root mean square above which updates are scaled down
  double weight_decay = 0;    ///< shrinks parameters by lr · weight_decay in each step
  bool decay_vectors = true;  ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  double clip_norm = 0;       ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;      ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};     ///< of the learning rate
  bool maximize = false;      ///< goes up the gradient
};

/// Adafactor (Shazeer and Stern 2018, algorithm 6, in PyTorch's form). A parameter with two axes or more has
/// the means of the rows and of the columns of its last two axes for a second moment, which needs little
/// memory:
///   ρ = min(lr, 1/√t),  α = max(ε₂, rms(p)) · ρ,  β = 1 − t^τ
///   R ← βR + (1 − β) mean_columns g²,  C ← βC + (1 − β) mean_rows g²,  V = RC / max(mean R, ε₁)
///   u = g / √max(V, ε₁²),  p ← (1 − lr · weight_decay)p − α · u / max(1, rms(u) / d)
/// For vectors and scalars, V ← βV + (1 − β)g².
class Adafactor : public Optimizer {
 public:
  Adafactor(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : Adafactor(AdafactorOptions{}, where) {}
  Adafactor(LearningRate lr, std::source_location where = std::source_location::current())
      : Adafactor(AdafactorOptions{.lr = lr.value}, where) {}
  Adafactor(const AdafactorOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
