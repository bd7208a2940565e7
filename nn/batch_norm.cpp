#include "espalier/nn/batch_norm.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/with_assignment.h"
#include "espalier/nn/channel_axes.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/widened.h"

namespace espalier::nn {

namespace {

class BatchNormState : public LayerStateOf<BatchNormState> {
 public:
  explicit BatchNormState(const BatchNormOptions& options) : LayerStateOf("BatchNorm"), options_(options) {
    if (!(options.epsilon > 0))
      throw Error(fmt::format("BatchNorm: epsilon is {}; it must be above 0", options.epsilon));
    if (options.momentum && !(*options.momentum >= 0 && *options.momentum <= 1))
      throw Error(fmt::format("BatchNorm: momentum is {}; it must be from 0 to 1", *options.momentum));
    if (options.affine) {
      declare("weight", {-1}, init::Ones());
      declare("bias", {-1}, init::Zeros());
    }
    if (!options.running_statistics) return;
    declare_buffer("running_mean", {-1}, init::Zeros());
    declare_buffer("running_var", {-1}, init::Ones());
    declare_buffer(
        "num_batches_tracked", {}, [](const Shape& shape, DType dtype) { return zeros(shape, dtype); },
        int64);
  }
  void create_for(int64_t features, DType dtype) { create_with("number of features", features, dtype); }

  Variable forward(const Variable& x) override {
    if (x.rank() < 2)
      throw ShapeError(fmt::format(
          "BatchNorm: an input of shape {} has no axis of features, as [n, features]", x.shape().str()));
    const Variable wide = widened(x);
    fit(wide, {{-1, x.shape()[1]}});
    return cast(training() || !options_.running_statistics ? by_batch(wide) : by_running(wide), x.dtype());
  }

 private:
  Variable normalized(const Variable& centered, const Variable& variance) const {
    const Variable deviation = sqrt(variance + options_.epsilon);
    if (!options_.affine) return centered / deviation;
    return centered * (along_channels(parameter("weight"), centered) / deviation) +
           along_channels(parameter("bias"), centered);
  }

  Variable by_running(const Variable& x) const {
    return normalized(x - along_channels(parameter("running_mean"), x),
                      along_channels(parameter("running_var"), x));
  }

  Variable by_batch(const Variable& x) const {
    const int64_t features = x.shape()[1];
    if (training() && x.shape().elements() <= features)
      throw ShapeError(
          fmt::format("BatchNorm: a batch of shape {} has {} of each feature, which has no variance",
                      x.shape().str(), x.shape().elements() == features ? "one element" : "no element"));
    Dims others = axes_from(2, x.rank());
    others.push_back(0);
    const Axes axes{Axes(others)};
    const Variable average = mean(x, axes, true), centered = x - average;
    const Variable variance = mean(square(centered), axes, true);
    Variable y = normalized(centered, variance);
    if (!training() || !options_.running_statistics) return y;
    // The number of elements of a feature in this step; batches differ in theirs.
    const Variable count = sum(ones_like(slice(x, 1, 0, 1)));
    const Variable unbiased = variance * (count / maximum(count - 1.0, 1.0));
    const Variable& seen = parameter("num_batches_tracked");
    const Variable part =
        options_.momentum ? full_like(count, *options_.momentum) : 1.0 / cast(seen + int64_t{1}, x.dtype());
    y = tracking(y, parameter("running_mean"), average, part);
    y = tracking(y, parameter("running_var"), unbiased, part);
    return with_assignment(y, seen, seen + int64_t{1});
  }

  /// `y`, and the running statistic moves by that part to the batch's.
  static Variable tracking(const Variable& y, const Variable& running, const Variable& of_batch,
                           const Variable& part) {
    const Variable vector = reshape(stop_gradient(of_batch), running.shape());
    return with_assignment(y, running, running + (vector - running) * part);
  }

  BatchNormOptions options_;
};

}  // namespace

BatchNorm::BatchNorm(BatchNormOptions options, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<BatchNormState>(options); })) {}

BatchNorm::BatchNorm(int64_t features, const BatchNormOptions& options, const Where* where)
    : BatchNorm(options, *where) {
  const CallScope scope(*where);
  located(*where, [&] { static_cast<BatchNormState&>(layer_state()).create_for(features, options.dtype); });
}

}  // namespace espalier::nn
