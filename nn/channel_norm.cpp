#include "espalier/nn/channel_norm.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/channel_axes.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"
#include "espalier/ops/widened.h"

namespace espalier::nn {

namespace {

class GroupNormState : public LayerStateOf<GroupNormState> {
 public:
  GroupNormState(int64_t groups, const ChannelNormOptions& options)
      : LayerStateOf("GroupNorm"), groups_(groups), epsilon_(options.epsilon), affine_(options.affine) {
    if (groups <= 0) throw Error(fmt::format("GroupNorm: {} groups; it needs at least one", groups));
    if (!(epsilon_ > 0)) throw Error(fmt::format("GroupNorm: epsilon is {}; it must be above 0", epsilon_));
    if (options.channels < 0) throw Error(fmt::format("GroupNorm: {} channels", options.channels));
    if (affine_) {
      declare("weight", {-1}, init::Ones());
      declare("bias", {-1}, init::Zeros());
    }
    if (options.channels == 0) return;
    check_groups(options.channels);
    create_with("number of channels", options.channels, options.dtype);
  }

  Variable forward(const Variable& x) override {
    if (x.rank() < 2)
      throw ShapeError(fmt::format(
          "GroupNorm: an input of shape {} has fewer than 2 axes, [n, channels, ...]", x.shape().str()));
    check_groups(x.shape()[1]);
    fit(x, {{-1, x.shape()[1]}});
    const Variable wide = widened(x), centered = wide - average(wide);
    const Variable y = centered / sqrt(average(square(centered)) + epsilon_);
    if (!affine_) return cast(y, x.dtype());
    return cast(
        y * along_channels(widened(parameter("weight")), x) + along_channels(widened(parameter("bias")), x),
        x.dtype());
  }

 private:
  void check_groups(int64_t channels) const {
    if (channels % groups_ != 0)
      throw ShapeError(fmt::format("GroupNorm: {} groups do not divide {} channels", groups_, channels));
  }

  /// The means over each group, to be broadcast to `x`. Those of the channels come first, since their sizes
  /// need not be known then.
  Variable average(const Variable& x) const {
    const Variable each = x.rank() > 2 ? mean(x, Axes(axes_from(2, x.rank())), true) : x;
    const int64_t channels = x.shape()[1], members = channels / groups_;
    const Variable of_groups = mean(reshape(each, {-1, groups_, members}), 2, true);
    const Variable repeated = of_groups + zeros({members}, x.dtype()).to(x.device());
    Dims shape(x.rank(), 1);
    shape[0] = -1;
    shape[1] = channels;
    return reshape(repeated, Shape(shape));
  }

  int64_t groups_;
  double epsilon_;
  bool affine_;
};

}  // namespace

GroupNorm::GroupNorm(int64_t groups, ChannelNormOptions options, Where where)
    : LayerOf(located(where, [&] {
        const CallScope scope(where);
        return std::make_shared<GroupNormState>(groups, options);
      })) {}

}  // namespace espalier::nn
