#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct LarsOptions {
  double lr = 0.1;
  double momentum = 0.9;
  double trust = 1e-3;        ///< η below
  double weight_decay = 0;    ///< β below
  bool decay_vectors = true;  ///< false: parameters of rank 0 and 1, as biases and gains are, do not decay
  bool adapt_vectors = true;  ///< false: parameters of rank 0 and 1 take steps of lr, without the trust ratio
  double clip_norm = 0;       ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;      ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};     ///< of the learning rate
  bool maximize = false;      ///< goes up the gradient
};

/// Layer-wise adaptive rate scaling (You et al., Large batch training of convolutional networks, 2017,
/// algorithm 1):
///   λ = η‖p‖ / (‖g‖ + β‖p‖),  v ← momentum · v + lr · λ · (g + βp),  p ← p − v
/// The norms are those of one parameter; λ is 1 where one of them is 0.
class Lars : public Optimizer {
 public:
  Lars(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : Lars(LarsOptions{}, where) {}
  Lars(LearningRate lr, std::source_location where = std::source_location::current())
      : Lars(LarsOptions{.lr = lr.value}, where) {}
  Lars(const LarsOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
