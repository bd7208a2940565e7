// Dropout: trains without a random part of the units. Srivastava et al., Dropout: a simple way to prevent
// neural networks from overfitting, 2014.
#pragma once
#include "espalier/nn/layer.h"

namespace espalier::nn {

/// In training mode zeroes elements with probability `rate` and divides the others by 1 − rate; the identity
/// otherwise. Throws Error unless 0 <= rate < 1.
class Dropout : public LayerOf<Dropout> {
 public:
  explicit Dropout(double rate = 0.5, Where where = Where::current());
};

}  // namespace espalier::nn
