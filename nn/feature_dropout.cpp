#include "espalier/nn/feature_dropout.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/nn/channel_axes.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

void check_rate(std::string_view kind, double rate) {
  if (!(rate >= 0 && rate < 1))
    throw Error(fmt::format("{}: the rate must be in [0, 1), not {}", kind, rate));
}

class ChannelDropoutState : public LayerStateOf<ChannelDropoutState> {
 public:
  explicit ChannelDropoutState(double rate) : rate_(rate) { check_rate("ChannelDropout", rate); }
  Variable forward(const Variable& x) override {
    if (x.rank() < 2)
      throw ShapeError(fmt::format(
          "ChannelDropout: an input of shape {} has no channels, as [n, channels, ...]", x.shape().str()));
    if (!training() || rate_ == 0) return x;
    if (x.rank() == 2) return dropout(x, rate_);
    // Only the shape of the sum is read.
    return x * dropout(ones_like(sum(x, Axes(axes_from(2, x.rank())), true)), rate_);
  }

 private:
  double rate_;
};

class AlphaDropoutState : public LayerStateOf<AlphaDropoutState> {
 public:
  explicit AlphaDropoutState(double rate) : rate_(rate) { check_rate("AlphaDropout", rate); }
  Variable forward(const Variable& x) override {
    if (!training() || rate_ == 0) return x;
    constexpr double lowest = -1.7580993408473766;  // −λα of Selu
    const double a = 1 / std::sqrt((1 - rate_) * (1 + rate_ * lowest * lowest)), b = -a * rate_ * lowest;
    // 0, 1 / (1 − rate), or in plans of inference 1, where elements stay as they are.
    const Variable kept = dropout(ones_like(x), rate_);
    const Variable dropped = where(greater(kept, 0.0), x * a + b, full_like(x, a * lowest + b));
    return where(equal(kept, 1.0), x, dropped);
  }

 private:
  double rate_;
};

}  // namespace

ChannelDropout::ChannelDropout(double rate, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<ChannelDropoutState>(rate); })) {}
AlphaDropout::AlphaDropout(double rate, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<AlphaDropoutState>(rate); })) {}

}  // namespace espalier::nn
