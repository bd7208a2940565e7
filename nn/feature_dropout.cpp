#include "espalier/nn/feature_dropout.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/nn/channel_axes.h"
#include "espalier/nn/dropout_state.h"
#include "espalier/ops/functions/dropouts.h"
#include "espalier/ops/ops.h"

namespace espalier::nn {

namespace {

void check_channels(std::string_view kind, const Variable& x) {
  if (x.rank() < 2)
    throw ShapeError(fmt::format("{}: an input of shape {} has no channels, as [n, channels, ...]", kind,
                                 x.shape().str()));
}

struct ChannelDropoutState : DropoutStateOf<ChannelDropoutState> {
  static constexpr std::string_view kind = "ChannelDropout";
  using DropoutStateOf::DropoutStateOf;
  static void check(const Variable& x) { check_channels(kind, x); }
  static Variable drop(const Variable& x, double rate) {
    if (x.rank() == 2) return dropout(x, rate);
    // Only the shape of the sum is read.
    return x * dropout(ones_like(sum(x, Axes(axes_from(2, x.rank())), true)), rate);
  }
};

struct AlphaDropoutState : DropoutStateOf<AlphaDropoutState> {
  static constexpr std::string_view kind = "AlphaDropout";
  using DropoutStateOf::DropoutStateOf;
  static void check(const Variable&) {}
  static Variable drop(const Variable& x, double rate) { return alpha_dropout(x, rate); }
};

struct FeatureAlphaDropoutState : DropoutStateOf<FeatureAlphaDropoutState> {
  static constexpr std::string_view kind = "FeatureAlphaDropout";
  using DropoutStateOf::DropoutStateOf;
  static void check(const Variable& x) { check_channels(kind, x); }
  static Variable drop(const Variable& x, double rate) { return feature_alpha_dropout(x, rate); }
};

}  // namespace

ChannelDropout::ChannelDropout(double rate, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<ChannelDropoutState>(rate); })) {}
AlphaDropout::AlphaDropout(double rate, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<AlphaDropoutState>(rate); })) {}
FeatureAlphaDropout::FeatureAlphaDropout(double rate, Where where)
    : LayerOf(located(where, [&] { return std::make_shared<FeatureAlphaDropoutState>(rate); })) {}

}  // namespace espalier::nn
