// Further pooling as layers: by norms, by random windows, of whole planes, and its reverse.
#pragma once
#include "espalier/nn/layer.h"
#include "espalier/ops/functions/fractional_pooling.h"
#include "espalier/ops/functions/lp_pooling.h"
#include "espalier/ops/functions/regions.h"
#include "espalier/ops/functions/unpooling.h"

namespace espalier::nn {

/// The norm of each window: `lp_pool`. An input with another number of axes throws ShapeError.
class LPPool1d : public LayerOf<LPPool1d> {
 public:
  explicit LPPool1d(LpPoolOptions options);
};
class LPPool2d : public LayerOf<LPPool2d> {
 public:
  explicit LPPool2d(LpPoolOptions options);
};
class LPPool3d : public LayerOf<LPPool3d> {
 public:
  explicit LPPool3d(LpPoolOptions options);
};

/// The largest element of windows at random distances, drawn by each call, in training or not:
/// `fractional_max_pool`. An input with another number of axes throws ShapeError.
class FractionalMaxPool2d : public LayerOf<FractionalMaxPool2d> {
 public:
  explicit FractionalMaxPool2d(FractionalPoolOptions options);
};
class FractionalMaxPool3d : public LayerOf<FractionalMaxPool3d> {
 public:
  explicit FractionalMaxPool3d(FractionalPoolOptions options);
};

/// One element of each plane, whatever the number of axes: `global_max_pool`, `global_avg_pool` and
/// `global_lp_pool`.
class GlobalMaxPool : public LayerOf<GlobalMaxPool> {
 public:
  GlobalMaxPool();
};
class GlobalAvgPool : public LayerOf<GlobalAvgPool> {
 public:
  GlobalAvgPool();
};
class GlobalLPPool : public LayerOf<GlobalLPPool> {
 public:
  explicit GlobalLPPool(double p = 2);
};

/// Elements at the places that max_pool_with_indices found: `max_unpool`. It takes two inputs, the elements
/// and the indices. An input with another number of axes throws ShapeError.
class MaxUnpool1d : public LayerOf<MaxUnpool1d> {
 public:
  explicit MaxUnpool1d(MaxUnpoolOptions options);
  Variable operator()(const Variable& x, const Variable& indices, Where where = Where::current()) const;
};
class MaxUnpool2d : public LayerOf<MaxUnpool2d> {
 public:
  explicit MaxUnpool2d(MaxUnpoolOptions options);
  Variable operator()(const Variable& x, const Variable& indices, Where where = Where::current()) const;
};
class MaxUnpool3d : public LayerOf<MaxUnpool3d> {
 public:
  explicit MaxUnpool3d(MaxUnpoolOptions options);
  Variable operator()(const Variable& x, const Variable& indices, Where where = Where::current()) const;
};

/// Boxes of images, each brought to one size: `roi_align` and `roi_pool` with boxes [k, 5]. They take two
/// inputs, the images and the boxes.
class RoiAlign : public LayerOf<RoiAlign> {
 public:
  explicit RoiAlign(RoiAlignOptions options);
  Variable operator()(const Variable& x, const Variable& boxes, Where where = Where::current()) const;
};
class RoiPool : public LayerOf<RoiPool> {
 public:
  explicit RoiPool(RoiPoolOptions options);
  Variable operator()(const Variable& x, const Variable& boxes, Where where = Where::current()) const;
};

}  // namespace espalier::nn
