#pragma once
#include "espalier/optim/optimizer.h"

namespace espalier::optim {

struct EgOptions {
  double lr = 0.1;
  double momentum = 0.9;
  double clip_norm = 0;    ///< the largest norm of all gradients together; 0: any
  double clip_value = 0;   ///< the largest size of one element of a gradient; 0: any
  Schedule schedule = {};  ///< of the learning rate
  bool maximize = false;   ///< goes up the gradient
};

/// Exponentiated gradient descent over probabilities (Kivinen and Warmuth 1997, with DyNet's momentum):
///   v ← momentum · v − lr · g,  p ← p · exp(v) / Σ p · exp(v)
/// The sum is over all elements of a parameter, which stay positive and add up to 1. Building an update
/// throws Error if a parameter has an element that is negative or NaN.
class Eg : public Optimizer {
 public:
  Eg(DefaultSettings = {}, std::source_location where = std::source_location::current())
      : Eg(EgOptions{}, where) {}
  Eg(LearningRate lr, std::source_location where = std::source_location::current())
      : Eg(EgOptions{.lr = lr.value}, where) {}
  Eg(const EgOptions& options, std::source_location where = std::source_location::current());
};

}  // namespace espalier::optim
