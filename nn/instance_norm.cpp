#include "espalier/nn/instance_norm.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/train_phase.h"
#include "espalier/nn/channel_axes.h"
#include "espalier/nn/running_statistics.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/reductions/sample_correction.h"
#include "espalier/ops/widened.h"

namespace espalier::nn {

namespace {

class InstanceNormState : public LayerStateOf<InstanceNormState, RunningStatistics> {
 public:
  explicit InstanceNormState(const InstanceNormOptions& options)
      : LayerStateOf("InstanceNorm"), options_(options) {
    if (!(options.epsilon > 0))
      throw Error(fmt::format("InstanceNorm: epsilon is {}; it must be above 0", options.epsilon));
    if (options.channels < 0) throw Error(fmt::format("InstanceNorm: {} channels", options.channels));
    if (options.affine) {
      declare("weight", {-1}, init::Ones());
      declare("bias", {-1}, init::Zeros());
    }
    if (options.running_statistics) declare_statistics(options.momentum);
    if (options.channels > 0) create_with("number of channels", options.channels, options.dtype);
  }

  Variable forward(const Variable& x) override {
    if (x.rank() < 3)
      throw ShapeError(fmt::format(
          "InstanceNorm: an input of shape {} has fewer than 3 axes, [n, channels, ...]", x.shape().str()));
    const Variable wide = widened(x);
    fit(options_.running_statistics ? wide : x, {{-1, x.shape()[1]}});
    const bool running = options_.running_statistics && !training();
    return cast(running ? by_running(wide) : by_example(wide), x.dtype());
  }

 private:
  Variable normalized(const Variable& centered, const Variable& variance) const {
    const Variable y = centered / sqrt(variance + options_.epsilon);
    if (!options_.affine) return y;
    return y * along_channels(widened(parameter("weight")), y) +
           along_channels(widened(parameter("bias")), y);
  }

  Variable by_running(const Variable& x) const {
    return normalized(x - along_channels(parameter("running_mean"), x),
                      along_channels(parameter("running_var"), x));
  }

  Variable by_example(const Variable& x) const {
    const Axes axes{Axes(axes_from(2, x.rank()))};
    const Variable average = mean(x, axes, true), centered = x - average;
    const Variable variance = mean(square(centered), axes, true);
    const Variable y = normalized(centered, variance);
    if (!options_.running_statistics) return y;
    if (const int64_t elements = x.shape().elements(); elements <= variance.shape().elements())
      throw ShapeError(
          fmt::format("InstanceNorm: an input of shape {} has {} of each channel, which has no variance",
                      x.shape().str(), elements ? "one element" : "no element"));
    const Variable tracked =
        tracking(y, mean(average, 0), mean(variance * sample_correction(x, variance), 0));
    return in_train_phase(tracked, [&] { return by_running(x); });
  }

  InstanceNormOptions options_;
};

}  // namespace

InstanceNorm::InstanceNorm(InstanceNormOptions options, Where where)
    : LayerOf(located(where, [&] {
        const CallScope scope(where);
        return std::make_shared<InstanceNormState>(options);
      })) {}

}  // namespace espalier::nn
