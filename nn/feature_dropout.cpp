#include "espalier/nn/feature_dropout.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/nn/channel_axes.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/functions/dropouts.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

void check_rate(std::string_view kind, double rate) {
  if (!(rate >= 0 && rate < 1))
    throw Error(fmt::format("{}: the rate must be in [0, 1), not {}", kind, rate));
}

void check_channels(std::string_view kind, const Variable& x) {
  if (x.rank() < 2)
    throw ShapeError(fmt::format("{}: an input of shape {} has no channels, as [n, channels, ...]", kind,
                                 x.shape().str()));
}

class ChannelDropoutState : public LayerStateOf<ChannelDropoutState> {
 public:
  explicit ChannelDropoutState(double rate) : rate_(rate) { check_rate("ChannelDropout", rate); }
  Variable forward(const Variable& x) override {
    check_channels("ChannelDropout", x);
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
    return training() && rate_ > 0 ? alpha_dropout(x, rate_) : x;
  }

 private:
  double rate_;
};

class FeatureAlphaDropoutState : public LayerStateOf<FeatureAlphaDropoutState> {
 public:
  explicit FeatureAlphaDropoutState(double rate) : rate_(rate) { check_rate("FeatureAlphaDropout", rate); }
  Variable forward(const Variable& x) override {
    check_channels("FeatureAlphaDropout", x);
    return training() && rate_ > 0 ? feature_alpha_dropout(x, rate_) : x;
  }

 private:
  double rate_;
};

}  // namespace

ChannelDropout::ChannelDropout(double rate, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<ChannelDropoutState>(rate); })) {}
AlphaDropout::AlphaDropout(double rate, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<AlphaDropoutState>(rate); })) {}
FeatureAlphaDropout::FeatureAlphaDropout(double rate, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<FeatureAlphaDropoutState>(rate); })) {}

}  // namespace espalier::nn
