// Smooth activations as layers; ops/functions/smooth_activation.h has formulas and sources.
#pragma once
#include "espalier/nn/layer.h"

namespace espalier::nn {

/// x·sigmoid(x), also called swish.
class Silu : public LayerOf<Silu> {
 public:
  Silu();
};
using Swish = Silu;

/// x·tanh(log(1 + eˣ))
class Mish : public LayerOf<Mish> {
 public:
  Mish();
};

/// log(1 + exp(beta x)) / beta. Throws Error if beta is 0.
class Softplus : public LayerOf<Softplus> {
 public:
  explicit Softplus(double beta = 1, double threshold = 20);
};

class LogSigmoid : public LayerOf<LogSigmoid> {
 public:
  LogSigmoid();
};

/// x / (1 + |x|)
class Softsign : public LayerOf<Softsign> {
 public:
  Softsign();
};

/// x − tanh(x)
class Tanhshrink : public LayerOf<Tanhshrink> {
 public:
  Tanhshrink();
};

/// a · sigmoid(b), for the halves a and b along an axis of even size (else ShapeError).
class Glu : public LayerOf<Glu> {
 public:
  explicit Glu(int64_t axis = -1);
};

}  // namespace espalier::nn
