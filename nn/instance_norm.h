// InstanceNorm: normalizes each channel of each example.
#pragma once
#include <optional>

#include "espalier/nn/layer.h"

namespace espalier::nn {

struct InstanceNormOptions {
  double epsilon = 1e-5;
  bool affine = false;
  /// Whether training keeps running means of the statistics of all examples, by which inference normalizes.
  bool running_statistics = false;
  /// How far running statistics move in a step, as those of BatchNorm. Empty: they are means over all steps.
  std::optional<double> momentum = 0.1;
  int64_t channels = 0;  ///< as for GroupNorm
  DType dtype = float32;
};

/// (x − mean) / √(variance + epsilon) over the elements of each channel of each example, times `weight` plus
/// `bias`, both [channels], if it is affine: [n, channels, ...] of rank 3 or more keeps its shape. 16-bit
/// inputs are computed in float32. Ulyanov et al., Instance normalization: the missing ingredient for fast
/// stylization, 2016.
///
/// With `running_statistics` each training step moves the buffers `running_mean`, `running_var` (of N − 1)
/// and `num_batches_tracked` to the means over its examples, and inference normalizes by them; parameters and
/// buffers of 16-bit inputs are float32 then.
///
/// Throws ShapeError for an input of lower rank, or of other channels, and with running statistics for
/// channels of one element or none in training; Error unless epsilon > 0 and 0 <= momentum <= 1.
class InstanceNorm : public LayerOf<InstanceNorm> {
 public:
  explicit InstanceNorm(InstanceNormOptions options = {}, Where where = Where::current());
};

}  // namespace espalier::nn
