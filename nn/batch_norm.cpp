#include "espalier/nn/batch_norm.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/feed.h"
#include "espalier/core/node.h"
#include "espalier/core/train_phase.h"
#include "espalier/core/tree.h"
#include "espalier/nn/channel_axes.h"
#include "espalier/nn/running_statistics.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/reductions/sample_correction.h"
#include "espalier/ops/widened.h"

namespace espalier::nn {

namespace {

/// Whether the first size is another one in each run.
bool reads_placeholder(const Variable& x) {
  if (!x.node()->lazy) return false;
  TreeWalk walk(x.node());
  while (const Node* node = walk.next()) {
    if (const auto* feed = node->op().feed(); feed && (*feed)->is_placeholder()) return true;
    walk.enter_inputs(*node);
  }
  return false;
}

class BatchNormState : public LayerStateOf<BatchNormState, RunningStatistics> {
 public:
  explicit BatchNormState(const BatchNormOptions& options) : LayerStateOf("BatchNorm"), options_(options) {
    if (!(options.epsilon > 0))
      throw Error(fmt::format("BatchNorm: epsilon is {}; it must be above 0", options.epsilon));
    if (options.affine) {
      declare("weight", {-1}, init::Ones());
      declare("bias", {-1}, init::Zeros());
    }
    if (options.running_statistics) declare_statistics(options.momentum);
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
    if (training() && x.shape().elements() <= features && !reads_placeholder(x))
      throw ShapeError(
          fmt::format("BatchNorm: a batch of shape {} has {} of each feature, which has no variance",
                      x.shape().str(), x.shape().elements() == features ? "one element" : "no element"));
    Dims others = axes_from(2, x.rank());
    others.push_back(0);
    const Axes axes{Axes(others)};
    const Variable average = mean(x, axes, true), centered = x - average;
    const Variable variance = mean(square(centered), axes, true);
    const Variable y = normalized(centered, variance);
    if (!training() || !options_.running_statistics) return y;
    const Variable tracked = tracking(y, average, variance * sample_correction(x, variance));
    return in_train_phase(tracked, [&] { return by_running(x); });
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
