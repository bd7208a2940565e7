// Activations with different formulas on either side of some points, as layers;
// ops/functions/piecewise_activation.h has formulas, sources and errors, which come with the first call.
#pragma once
#include "espalier/nn/layer.h"

namespace espalier::nn {

class LeakyRelu : public LayerOf<LeakyRelu> {
 public:
  explicit LeakyRelu(double slope = 0.01);
};

/// x above 0, x · weight elsewhere, with the parameter `weight` [slopes]: one for all, or one for each
/// channel, which are axis 1. Throws Error unless slopes is positive, ShapeError for an input of other
/// channels.
class PRelu : public LayerOf<PRelu> {
 public:
  explicit PRelu(int64_t slopes = 1, double slope = 0.25, DType dtype = float32,
                 Where where = Where::current());
};

/// Slopes drawn for each element in training mode, and their mean otherwise.
class RRelu : public LayerOf<RRelu> {
 public:
  explicit RRelu(double lower = 1.0 / 8, double upper = 1.0 / 3);
};

class Elu : public LayerOf<Elu> {
 public:
  explicit Elu(double alpha = 1);
};

class Celu : public LayerOf<Celu> {
 public:
  explicit Celu(double alpha = 1);
};

class Selu : public LayerOf<Selu> {
 public:
  Selu();
};

class Relu6 : public LayerOf<Relu6> {
 public:
  Relu6();
};

class Hardtanh : public LayerOf<Hardtanh> {
 public:
  explicit Hardtanh(double low = -1, double high = 1);
};

class Hardsigmoid : public LayerOf<Hardsigmoid> {
 public:
  Hardsigmoid();
};

class Hardswish : public LayerOf<Hardswish> {
 public:
  Hardswish();
};

class Softshrink : public LayerOf<Softshrink> {
 public:
  explicit Softshrink(double lambda = 0.5);
};

class Hardshrink : public LayerOf<Hardshrink> {
 public:
  explicit Hardshrink(double lambda = 0.5);
};

/// x above `bound`, `value` elsewhere.
class Threshold : public LayerOf<Threshold> {
 public:
  Threshold(double bound, double value);
};

}  // namespace espalier::nn
