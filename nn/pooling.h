// Pooling as layers: [n, channels, sizes…] with one, two or three sizes.
#pragma once
#include "espalier/nn/layer.h"
#include "espalier/ops/functions/pooling.h"

namespace espalier::nn {

using espalier::PoolOptions;

/// The largest element of each window: `max_pool`. Throws Error for sizes that make no sense. An input with
/// another number of axes throws ShapeError.
class MaxPool1d : public LayerOf<MaxPool1d> {
 public:
  explicit MaxPool1d(MaxPoolOptions options, Where where = Where::current());
};
class MaxPool2d : public LayerOf<MaxPool2d> {
 public:
  explicit MaxPool2d(MaxPoolOptions options, Where where = Where::current());
};
class MaxPool3d : public LayerOf<MaxPool3d> {
 public:
  explicit MaxPool3d(MaxPoolOptions options, Where where = Where::current());
};

/// The mean of each window: `avg_pool`. Throws as those.
class AvgPool1d : public LayerOf<AvgPool1d> {
 public:
  explicit AvgPool1d(AveragePoolOptions options, Where where = Where::current());
};
class AvgPool2d : public LayerOf<AvgPool2d> {
 public:
  explicit AvgPool2d(AveragePoolOptions options, Where where = Where::current());
};
class AvgPool3d : public LayerOf<AvgPool3d> {
 public:
  explicit AvgPool3d(AveragePoolOptions options, Where where = Where::current());
};

/// The largest element of each of so many parts of an axis: `adaptive_max_pool`. An input with another number
/// of axes throws ShapeError.
class AdaptiveMaxPool1d : public LayerOf<AdaptiveMaxPool1d> {
 public:
  explicit AdaptiveMaxPool1d(PerAxis parts);
};
class AdaptiveMaxPool2d : public LayerOf<AdaptiveMaxPool2d> {
 public:
  explicit AdaptiveMaxPool2d(PerAxis parts);
};
class AdaptiveMaxPool3d : public LayerOf<AdaptiveMaxPool3d> {
 public:
  explicit AdaptiveMaxPool3d(PerAxis parts);
};

/// The mean of each of so many parts of an axis: `adaptive_avg_pool`. An input with another number of axes
/// throws ShapeError.
class AdaptiveAvgPool1d : public LayerOf<AdaptiveAvgPool1d> {
 public:
  explicit AdaptiveAvgPool1d(PerAxis parts);
};
class AdaptiveAvgPool2d : public LayerOf<AdaptiveAvgPool2d> {
 public:
  explicit AdaptiveAvgPool2d(PerAxis parts);
};
class AdaptiveAvgPool3d : public LayerOf<AdaptiveAvgPool3d> {
 public:
  explicit AdaptiveAvgPool3d(PerAxis parts);
};

}  // namespace espalier::nn
