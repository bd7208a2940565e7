// What L-BFGS keeps between steps.
#pragma once
#include <vector>

#include "espalier/optim/lbfgs.h"

namespace espalier::optim {

/// Vectors have the elements of all parameters.
struct Lbfgs::Memory {
  int64_t iterations = 0;
  int64_t evaluations = 0;
  double length = 0;             ///< of the last step, in multiples of its direction
  double curvature_scale = 1;    ///< the first estimate of the inverse Hessian is this times the identity
  Variable direction, gradient;  ///< of the last step, and at its beginning; undefined before the first
  struct Pair {
    Variable gradient_change, change;
    double inverse;  ///< 1 / their product
  };
  std::vector<Pair> pairs;
};

}  // namespace espalier::optim
