// BatchNorm: normalizes every feature by its statistics in the batch, or by running ones.
#pragma once
#include <concepts>
#include <optional>

#include "espalier/nn/layer.h"

namespace espalier::nn {

struct BatchNormOptions {
  double epsilon = 1e-5;
  /// How far running statistics move to those of a batch: running ← (1 − momentum) · running + momentum ·
  /// batch. Empty: they are the mean over all batches.
  std::optional<double> momentum = 0.1;
  bool affine = true;
  /// Without running statistics those of the batch serve in inference mode, too.
  bool running_statistics = true;
  DType dtype = float32;  ///< of the parameters, if the number of features is given: a real one
};

/// (x − mean) / √(variance + epsilon) for each feature of [n, features, ...], times `weight` plus `bias`.
/// In training mode mean and variance are those of the batch, over all other axes, and each step writes the
/// buffers `running_mean`, `running_var` (of N − 1) and `num_batches_tracked`; in inference mode these serve,
/// and in plans of inference, also for validation, of a tree that was written in training mode. Parameters
/// and buffers are [features], those of 16-bit inputs float32, in which they are computed. On replicas
/// statistics are those of the whole batch, or with `local_statistics` of the executor each replica's own
/// (and each micro-batch's, if it accumulates), of which the buffers get the mean. If a step calls the layer
/// several times, the buffers move by each batch in turn. Ioffe and Szegedy, Batch normalization, 2015.
///
/// Throws ShapeError for an input of rank below 2 or of other features, and in training mode for a batch with
/// one element of each feature (of a feed: for full batches of such; DistributorOptions::drop_remainder
/// leaves out a short last one, whose variance is 0); TypeError for another dtype; Error unless epsilon > 0
/// and 0 <= momentum <= 1.
class BatchNorm : public LayerOf<BatchNorm> {
 public:
  /// The number of features and the dtype come with the first input.
  explicit BatchNorm(BatchNormOptions options = {}, Where where = Where::current());
  /// With the number of features: parameters are there at once, on the CPU. Throws Error unless it is
  /// positive.
  template <std::integral Features>
  explicit BatchNorm(Features features, BatchNormOptions options = {}, Where where = Where::current())
      : BatchNorm(static_cast<int64_t>(features), options, &where) {}

 private:
  BatchNorm(int64_t features, const BatchNormOptions& options, const Where* where);
};

}  // namespace espalier::nn
