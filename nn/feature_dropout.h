// Dropout of whole channels, and dropout that keeps mean and variance.
#pragma once
#include "espalier/nn/layer.h"

namespace espalier::nn {

/// In training mode zeroes whole channels of [n, channels, ...] with probability `rate`, for each example its
/// own, and divides the others by 1 − rate; the identity otherwise. Tompson et al., Efficient object
/// localization using convolutional networks, 2015. Throws ShapeError for an input of rank below 2, Error
/// unless 0 <= rate < 1.
class ChannelDropout : public LayerOf<ChannelDropout> {
 public:
  explicit ChannelDropout(double rate = 0.5, Where where = Where::current());
};

/// In training mode sets elements to −1.7581, where Selu ends, with probability `rate`, and scales and shifts
/// all so that mean 0 and variance 1 stay; the identity otherwise. Klambauer et al., Self-normalizing neural
/// networks, 2017. Throws Error unless 0 <= rate < 1.
class AlphaDropout : public LayerOf<AlphaDropout> {
 public:
  explicit AlphaDropout(double rate = 0.5, Where where = Where::current());
};

/// The same for whole channels of [n, channels, ...], for each example its own; rank 2 has one element of
/// each. Throws ShapeError for an input of lower rank, Error unless 0 <= rate < 1.
class FeatureAlphaDropout : public LayerOf<FeatureAlphaDropout> {
 public:
  explicit FeatureAlphaDropout(double rate = 0.5, Where where = Where::current());
};

}  // namespace espalier::nn
