// What several models are made of. For writers of models.
#pragma once
#include <optional>
#include <string_view>

#include "espalier/nn/batch_norm.h"
#include "espalier/nn/container.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/dense.h"

namespace espalier::nn::vision {

struct KernelOptions {
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t groups = 1;
  DType dtype = float32;
};
/// A convolution without a bias, padded by half of its kernel, with weights of He's deviation for gradients
/// (√(2 / (out · kernel²))).
Conv2d unbiased_conv(int64_t in, int64_t out, const KernelOptions& options);
/// With parameters of the dtype, or in float32 for 16-bit ones.
BatchNorm batch_norm_of(int64_t features, DType dtype);

/// Throws Error, which begins with `model`, unless the numbers are positive, and TypeError unless the dtype
/// is real.
void check_model(std::string_view model, std::optional<int64_t> classes, int64_t channels, DType dtype);

struct BlockOptions {
  /// Of the shortcut, which is a part "downsample"; without it the input itself is added.
  std::optional<Sequential> downsample = {};
  bool relu = false;  ///< of the sum
};
/// f(x) + shortcut(x). Unlike those of Residual, the parts of f are parts of this layer, by the names that
/// they have in `body`.
class Block : public LayerOf<Block> {
 public:
  explicit Block(const Sequential& body, const BlockOptions& options = {});
};

}  // namespace espalier::nn::vision
