// WeightNorm and SpectralNorm: layers whose weight is computed from its direction and length, or divided by
// its largest singular value.
#pragma once
#include <cstdint>
#include <optional>
#include <source_location>
#include <string>

#include "espalier/nn/layer.h"

namespace espalier::nn {

/// g · v / ‖v‖, the norms over all axes of `v` but `axis`, or over all if it is empty. `g` is broadcast to
/// `v`: of size 1 along the other axes, or a scalar. Both are reals of one dtype; of 16 bits they are
/// computed in float32. Where a norm is 0 the result is NaN. Salimans and Kingma, Weight normalization: a
/// simple reparameterization to accelerate training of deep neural networks, 2016. Throws ShapeError,
/// TypeError.
Variable weight_norm(const Variable& v, const Variable& g, std::optional<int64_t> axis = 0,
                     std::source_location where = std::source_location::current());

struct WeightNormOptions {
  std::string parameter = "weight";
  /// Along which lengths differ: 0, that of the outputs. Empty: there is one for the whole parameter.
  std::optional<int64_t> axis = 0;
};

/// The layer, whose parameter w is from now on computed as weight_norm(v, g): it has the parameters
/// `weight_v`, which is what `weight` was, and `weight_g`, which starts with the norms of it, so that the
/// layer computes what it did. The handle given and this one are on the same layer. Names and formula are
/// those of PyTorch's torch.nn.utils.weight_norm. Throws Error if the layer has no parameter of that name of
/// its own, ShapeError for an axis that it does not have.
class WeightNorm : public LayerOf<WeightNorm> {
 public:
  explicit WeightNorm(Layer layer, WeightNormOptions options = {}, Where where = Where::current());
};

struct SpectralNormOptions {
  std::string parameter = "weight";
  /// In each step of training; inference takes the vectors of the last one.
  int64_t power_iterations = 1;
  double epsilon = 1e-12;  ///< smaller norms count as this
  int64_t axis = 0;        ///< of the rows of the matrix; all others together are its columns
};

/// The layer, whose parameter w is from now on w / σ, where σ = uᵀ·W·v is about the largest singular value of
/// w as a matrix: `weight_orig` is what `weight` was, and the buffers `weight_u` and `weight_v`, which start
/// with random numbers, go on with the power iteration v ← Wᵀu / ‖Wᵀu‖, u ← Wv / ‖Wv‖ in each call in
/// training mode, downstream of a feed once in each step. Gradients take u and v for constants. The handle
/// given and this one are on the same layer. Names and formula are those of PyTorch's
/// torch.nn.utils.spectral_norm. Miyato et al., Spectral normalization for generative adversarial networks,
/// 2018. Throws Error if the layer has no parameter of that name of its own, or unless power_iterations > 0
/// and epsilon > 0, ShapeError for a vector, or an axis that it does not have.
class SpectralNorm : public LayerOf<SpectralNorm> {
 public:
  explicit SpectralNorm(Layer layer, SpectralNormOptions options = {}, Where where = Where::current());
};

}  // namespace espalier::nn
