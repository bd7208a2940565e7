// GroupNorm: normalizes groups of channels of each example.
#pragma once
#include "espalier/nn/instance_norm.h"
#include "espalier/nn/layer.h"

namespace espalier::nn {

struct ChannelNormOptions {
  double epsilon = 1e-5;
  bool affine = true;
  /// The number of channels: then the parameters are there at once, on the CPU, in `dtype`. 0: it comes with
  /// the first input.
  int64_t channels = 0;
  DType dtype = float32;
};

/// (x − mean) / √(variance + epsilon) over the elements of each of `groups` groups of neighbouring channels
/// in each example, times `weight` plus `bias`, both [channels]: [n, channels, ...] keeps its shape. 16-bit
/// inputs are computed in float32. Wu and He, Group normalization, 2018. Throws ShapeError for an input of
/// rank below 2, or of other channels, and unless the groups divide the channels; Error unless groups and
/// epsilon are above 0.
class GroupNorm : public LayerOf<GroupNorm> {
 public:
  explicit GroupNorm(int64_t groups, ChannelNormOptions options = {}, Where where = Where::current());
};

}  // namespace espalier::nn
