// Layers without parameters, so that Sequential can hold them. As functions they are in ops.h.
#pragma once
#include "espalier/nn/layer.h"

namespace espalier::nn {

/// max(x, 0)
class Relu : public LayerOf<Relu> {
 public:
  Relu();
};

/// x·Φ(x), with the standard normal distribution Φ.
class Gelu : public LayerOf<Gelu> {
 public:
  Gelu();
};

class Tanh : public LayerOf<Tanh> {
 public:
  Tanh();
};

/// 1 / (1 + e⁻ˣ)
class Sigmoid : public LayerOf<Sigmoid> {
 public:
  Sigmoid();
};

/// e^x / Σ e^x along one axis. Throws ShapeError when the input has no such axis.
class Softmax : public LayerOf<Softmax> {
 public:
  explicit Softmax(int64_t axis = -1);
};

/// log softmax(x), of large numbers too.
class LogSoftmax : public LayerOf<LogSoftmax> {
 public:
  explicit LogSoftmax(int64_t axis = -1);
};

/// softmax(−x).
class Softmin : public LayerOf<Softmin> {
 public:
  explicit Softmin(int64_t axis = -1);
};

/// Axes `first` and all after it become one: [n, 3, 8, 8] becomes [n, 192].
class Flatten : public LayerOf<Flatten> {
 public:
  explicit Flatten(int64_t first = 1);
};

}  // namespace espalier::nn
