// Windows and pixels rearranged, and images in other sizes, as layers.
#pragma once
#include "espalier/nn/layer.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

/// [n, channels, sizes…] as columns of windows: `unfold` with these options.
class Unfold : public LayerOf<Unfold> {
 public:
  explicit Unfold(WindowOptions options);
};

/// Columns of windows added up to [n, channels, sizes…]: `fold`.
class Fold : public LayerOf<Fold> {
 public:
  Fold(Shape sizes, WindowOptions options);
};

// Constructors throw Error for factors, groups, sizes and scales that are not positive.

/// [..., channels · factor², height, width] as [..., channels, height · factor, width · factor].
class PixelShuffle : public LayerOf<PixelShuffle> {
 public:
  explicit PixelShuffle(int64_t factor, Where where = Where::current());
};

/// The reverse of PixelShuffle.
class PixelUnshuffle : public LayerOf<PixelUnshuffle> {
 public:
  explicit PixelUnshuffle(int64_t factor, Where where = Where::current());
};

/// [n, channels, sizes…] with other sizes, by a size or a scale: `interpolate`.
class Upsample : public LayerOf<Upsample> {
 public:
  explicit Upsample(InterpolateOptions options, Where where = Where::current());
};

/// Channels take turns between `groups` groups of neighbours: `channel_shuffle`.
class ChannelShuffle : public LayerOf<ChannelShuffle> {
 public:
  explicit ChannelShuffle(int64_t groups, Where where = Where::current());
};

/// x / (k + α/size · Σ x²)^β over neighbouring channels: `local_response_norm`.
class LocalResponseNorm : public LayerOf<LocalResponseNorm> {
 public:
  explicit LocalResponseNorm(LocalResponseOptions options = {});
};

}  // namespace espalier::nn
