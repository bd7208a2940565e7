#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct LambOptions {
  double lr = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0;    ///< λ below
  bool decay_vectors = true;  ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  bool adapt_vectors = true;  ///< false: parameters of rank 0 and 1 take steps of lr, without the trust ratio
  double clip_norm = 0;       ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;      ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};     ///< of the learning rate
  bool maximize = false;      ///< goes up the gradient
};

/// Lamb (You et al., Large batch optimization for deep learning, 2020, algorithm 2), m̂ and v̂ as Adam's:
///   u = m̂ / (√v̂ + ε) + λp,  p ← p − lr · ‖p‖ / ‖u‖ · u
/// The trust ratio ‖p‖ / ‖u‖ is that of one parameter; it is 1 where a norm is 0.
class Lamb : public Optimizer {
 public:
  Lamb(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : Lamb(LambOptions{}, where) {}
  Lamb(LearningRate lr, std::source_location where = std::source_location::current())
      : Lamb(LambOptions{.lr = lr.value}, where) {}
  Lamb(const LambOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
