// Distributions that may have zeros, as layers; ops/functions/simplex.h has sources and errors.
#pragma once
#include "espalier/nn/layer.h"
#include "espalier/ops/functions/simplex.h"

namespace espalier::nn {

/// The nearest distribution along an axis.
class Sparsemax : public LayerOf<Sparsemax> {
 public:
  explicit Sparsemax(int64_t axis = -1);
};

/// A sample of the classes with the probabilities softmax(x), through which a gradient passes. In inference
/// mode it adds no noise: softmax(x / temperature), or with `hard` the likeliest class.
class GumbelSoftmax : public LayerOf<GumbelSoftmax> {
 public:
  explicit GumbelSoftmax(GumbelSoftmaxOptions options = {});
};

}  // namespace espalier::nn
