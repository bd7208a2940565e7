#include <array>
#include <string>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/pooling.h"
#include "espalier/nn/vision/models.h"
#include "espalier/nn/vision/parts.h"

namespace espalier::nn::vision {

namespace {

using Depths = std::array<int64_t, 4>;

/// One block after another, the first of which takes the channels and sizes from its input.
class Blocks {
 public:
  Blocks(bool bottlenecks, DType dtype) : bottlenecks_(bottlenecks), dtype_(dtype) {}

  Sequential stage(int64_t width, int64_t depth, int64_t stride) {
    Sequential stage;
    for (int64_t i = 0; i < depth; ++i) stage.append(block(width, i == 0 ? stride : 1));
    return stage;
  }
  int64_t channels() const { return channels_; }

 private:
  Block block(int64_t width, int64_t stride) {
    const int64_t in = channels_;
    channels_ = bottlenecks_ ? 4 * width : width;
    Sequential body;
    if (bottlenecks_) {
      add(body, 1, in, width, {.kernel = 1, .dtype = dtype_});
      body.append("relu1", Relu());
      add(body, 2, width, width, {.kernel = 3, .stride = stride, .dtype = dtype_});
      body.append("relu2", Relu());
      add(body, 3, width, channels_, {.kernel = 1, .dtype = dtype_});
    } else {
      add(body, 1, in, width, {.kernel = 3, .stride = stride, .dtype = dtype_});
      body.append("relu", Relu());
      add(body, 2, width, width, {.kernel = 3, .dtype = dtype_});
    }
    if (stride == 1 && in == channels_) return Block(body, {.relu = true});
    const Sequential downsample{
        unbiased_conv(in, channels_, {.kernel = 1, .stride = stride, .dtype = dtype_}),
        batch_norm_of(channels_, dtype_)};
    return Block(body, {.downsample = downsample, .relu = true});
  }
  void add(Sequential& body, int number, int64_t in, int64_t out, const KernelOptions& options) const {
    const std::string suffix = std::to_string(number);
    body.append("conv" + suffix, unbiased_conv(in, out, options));
    body.append("bn" + suffix, batch_norm_of(out, options.dtype));
  }

  bool bottlenecks_;
  DType dtype_;
  int64_t channels_ = 64;
};

Sequential resnet(std::string_view model, const Depths& depths, bool bottlenecks,
                  const ClassifierOptions& options, const std::source_location& where) {
  const CallScope scope(where);
  return located(where, [&] {
    check_model(model, options.classes, options.channels, options.dtype);
    Blocks blocks(bottlenecks, options.dtype);
    Sequential net;
    net.append("conv1", unbiased_conv(options.channels, blocks.channels(),
                                      {.kernel = 7, .stride = 2, .dtype = options.dtype}));
    net.append("bn1", batch_norm_of(blocks.channels(), options.dtype));
    net.append("relu", Relu()).append("maxpool", MaxPool2d({.kernel = 3, .stride = 2, .padding = 1}));
    net.append("layer1", blocks.stage(64, depths[0], 1));
    net.append("layer2", blocks.stage(128, depths[1], 2));
    net.append("layer3", blocks.stage(256, depths[2], 2));
    net.append("layer4", blocks.stage(512, depths[3], 2));
    net.append("avgpool", AdaptiveAvgPool2d(1)).append("flatten", Flatten());
    if (options.classes)
      net.append("fc", Dense(blocks.channels(), *options.classes, {.dtype = options.dtype}));
    return net;
  });
}

}  // namespace

Sequential resnet18(const ClassifierOptions& options, std::source_location where) {
  return resnet("resnet18", {2, 2, 2, 2}, false, options, where);
}
Sequential resnet34(const ClassifierOptions& options, std::source_location where) {
  return resnet("resnet34", {3, 4, 6, 3}, false, options, where);
}
Sequential resnet50(const ClassifierOptions& options, std::source_location where) {
  return resnet("resnet50", {3, 4, 6, 3}, true, options, where);
}
Sequential resnet101(const ClassifierOptions& options, std::source_location where) {
  return resnet("resnet101", {3, 4, 23, 3}, true, options, where);
}
Sequential resnet152(const ClassifierOptions& options, std::source_location where) {
  return resnet("resnet152", {3, 8, 36, 3}, true, options, where);
}

}  // namespace espalier::nn::vision
