// Helpers of tests that compare ways of training.
#pragma once
#include <algorithm>
#include <cmath>
#include <vector>

#include "espalier/optim/adagrad.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/rmsprop.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace espalier::testing {

/// The outcome of a run: losses, values, parameters.
using Trace = std::vector<Tensor>;

inline double difference_of(const Trace& a, const Trace& b) {
  if (a.size() != b.size()) return INFINITY;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) largest = std::max(largest, difference(a[i], b[i]));
  return largest;
}

/// One optimizer of each rule, with and without the options.
constexpr uint32_t optimizers = 12;
inline optim::Optimizer optimizer_of(uint32_t which) {
  switch (which % optimizers) {
    case 0: return optim::Sgd({.lr = 0.05});
    case 1: return optim::Sgd({.lr = 0.05, .momentum = 0.9});
    case 2: return optim::Sgd({.lr = 0.05, .momentum = 0.9, .nesterov = true, .weight_decay = 0.1});
    case 3: return optim::Sgd({.lr = 0.05, .clip_norm = 0.1});
    case 4: return optim::Sgd({.lr = 0.05, .clip_value = 0.01, .schedule = optim::exponential(0.9)});
    case 5: return optim::Sgd({.lr = 0.05, .schedule = optim::cosine({.steps = 10, .warm_up = 2})});
    case 6: return optim::Adam({.lr = 0.01, .epsilon = 1e-3});
    case 7: return optim::AdamW({.lr = 0.01, .epsilon = 1e-3, .clip_norm = 1});
    case 8: return optim::RmsProp({.lr = 0.01, .epsilon = 1e-2});
    case 9: return optim::RmsProp({.lr = 0.01, .epsilon = 1e-2, .momentum = 0.5, .weight_decay = 0.01});
    case 10: return optim::Adagrad({.lr = 0.01, .epsilon = 1e-2});
    default: return optim::Adam({.lr = 0.01, .epsilon = 1e-2, .schedule = optim::step_decay({.every = 2})});
  }
}

}  // namespace espalier::testing
