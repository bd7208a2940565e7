#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/piecewise_activation.h"
#include "espalier/nn/pooling.h"
#include "espalier/nn/vision/models.h"
#include "espalier/nn/vision/parts.h"

namespace espalier::nn::vision {

namespace {

/// The multiple of 8 next to `channels`, or the one above where that would be less than nine tenths of it.
int64_t rounded_channels(double channels) {
  const int64_t nearest = std::max<int64_t>(8, static_cast<int64_t>(channels + 4) / 8 * 8);
  return static_cast<double>(nearest) < 0.9 * channels ? nearest + 8 : nearest;
}

Sequential conv_norm_relu6(int64_t in, int64_t out, const KernelOptions& options) {
  return Sequential{unbiased_conv(in, out, options), batch_norm_of(out, options.dtype), Relu6()};
}

/// Widened, convolved channel by channel, and narrowed again without an activation. The input is added where
/// its shape stays.
Layer inverted_residual(int64_t in, int64_t out, int64_t stride, int64_t expansion, DType dtype) {
  const int64_t wide = in * expansion;
  Sequential conv;
  if (expansion != 1) conv.append(conv_norm_relu6(in, wide, {.kernel = 1, .dtype = dtype}));
  conv.append(conv_norm_relu6(wide, wide, {.kernel = 3, .stride = stride, .groups = wide, .dtype = dtype}),
              unbiased_conv(wide, out, {.kernel = 1, .dtype = dtype}), batch_norm_of(out, dtype));
  const Sequential body = Sequential().append("conv", conv);
  if (stride == 1 && in == out) return Block(body);
  return body;
}

Sequential mobilenet_features(const MobileNetOptions& options, int64_t last) {
  // The factors of channels, channels, blocks, and the stride of the first of them (table 2 of the paper).
  constexpr struct {
    int64_t expansion, channels, blocks, stride;
  } kStages[] = {{1, 16, 1, 1}, {6, 24, 2, 2},  {6, 32, 3, 2}, {6, 64, 4, 2},
                 {6, 96, 3, 1}, {6, 160, 3, 2}, {6, 320, 1, 1}};
  int64_t channels = rounded_channels(32 * options.width);
  Sequential features;
  features.append(conv_norm_relu6(options.channels, channels, {.stride = 2, .dtype = options.dtype}));
  for (const auto& stage : kStages)
    for (int64_t i = 0; i < stage.blocks; ++i) {
      const int64_t out = rounded_channels(static_cast<double>(stage.channels) * options.width);
      features.append(
          inverted_residual(channels, out, i == 0 ? stage.stride : 1, stage.expansion, options.dtype));
      channels = out;
    }
  return features.append(conv_norm_relu6(channels, last, {.kernel = 1, .dtype = options.dtype}));
}

}  // namespace

Sequential mobilenet_v2(const MobileNetOptions& options, std::source_location where) {
  const CallScope scope(where);
  return located(where, [&] {
    check_model("mobilenet_v2", options.classes, options.channels, options.dtype);
    if (!(options.width > 0 && std::isfinite(options.width)))
      throw Error(fmt::format("mobilenet_v2: the width is {}; it must be above 0", options.width));
    const int64_t last = rounded_channels(1280 * std::max(1.0, options.width));
    Sequential net;
    net.append("features", mobilenet_features(options, last));
    net.append("avgpool", AdaptiveAvgPool2d(1)).append("flatten", Flatten());
    Sequential classifier{Dropout(options.dropout)};
    if (options.classes)
      classifier.append(
          Dense(last, *options.classes, {.initializer = init::Normal(0, 0.01), .dtype = options.dtype}));
    return net.append("classifier", classifier);
  });
}

}  // namespace espalier::nn::vision
