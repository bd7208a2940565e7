#include <fmt/format.h>

#include <string>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/layer_state.h"
#include "espalier/nn/pooling.h"
#include "espalier/nn/vision/models.h"
#include "espalier/nn/vision/parts.h"
#include "espalier/ops/ops.h"

namespace espalier::nn::vision {

namespace {

/// Two convolutions of 3×3 with normalizations; parts of the block "enc1" are "enc1conv1", "enc1norm1", ….
Sequential unet_block(const std::string& name, int64_t in, int64_t out, DType dtype) {
  Sequential parts;
  for (const std::string number : {"1", "2"}) {
    parts.append(name + "conv" + number, unbiased_conv(number == "1" ? in : out, out, {.dtype = dtype}));
    parts.append(name + "norm" + number, batch_norm_of(out, dtype));
    parts.append(name + "relu" + number, Relu());
  }
  return parts;
}

/// Children in the order of their calls: encoders, the bottleneck, for each level from the lowest a
/// transposed convolution and a decoder, and the last convolution.
class UNetState : public LayerStateOf<UNetState> {
 public:
  explicit UNetState(const UNetOptions& options) : LayerStateOf("UNet"), options_(options) {
    const DType dtype = options.dtype;
    int64_t in = options.channels, width = options.width;
    for (int64_t level = 1; level <= options.levels; ++level, in = width, width *= 2)
      add_child(fmt::format("encoder{}", level),
                unet_block(fmt::format("enc{}", level), in, width, dtype).state());
    add_child("bottleneck", unet_block("bottleneck", in, width, dtype).state());
    for (int64_t level = options.levels; level >= 1; --level) {
      const ConvTranspose2d up(width, width / 2, {.kernel = 2, .stride = 2, .dtype = dtype});
      add_child(fmt::format("upconv{}", level), up.state());
      add_child(fmt::format("decoder{}", level),
                unet_block(fmt::format("dec{}", level), width, width / 2, dtype).state());
      width /= 2;
    }
    add_child("conv", Conv2d(width, options.classes, {.kernel = 1, .dtype = dtype}).state());
  }

  Variable forward(const Variable& x) override {
    check_sizes(x);
    size_t next = 0;
    const auto call_next = [&](const Variable& y) {
      return static_cast<LayerState&>(*entries()[next++].child).call(y);
    };
    std::vector<Variable> encoded;
    Variable y = x;
    for (int64_t level = 0; level < options_.levels; ++level) {
      encoded.push_back(call_next(y));
      y = max_pool(encoded.back(), {.kernel = 2});
    }
    y = call_next(y);
    for (; !encoded.empty(); encoded.pop_back()) {
      const Variable up = call_next(y);
      y = call_next(concat({up, encoded.back()}, 1));
    }
    return call_next(y);
  }

 private:
  void check_sizes(const Variable& x) const {
    const int64_t unit = int64_t{1} << options_.levels;
    if (x.rank() != 4 || x.shape()[2] % unit != 0 || x.shape()[3] % unit != 0)
      throw ShapeError(fmt::format(
          "UNet: takes [n, channels, height, width] with heights and widths that are multiples of {}, not {}",
          unit, x.shape().str()));
  }
  UNetOptions options_;
};

}  // namespace

UNet::UNet(UNetOptions options, Where where)
    : LayerOf(located(where, [&] {
        const CallScope scope(where);
        check_model("UNet", options.classes, options.channels, options.dtype);
        if (options.width < 1 || options.levels < 1 || options.levels > 16)
          throw Error(fmt::format(
              "UNet: a width of {} and {} levels; it needs a width of at least 1, and 1 to 16 levels",
              options.width, options.levels));
        return std::make_shared<UNetState>(options);
      })) {}

}  // namespace espalier::nn::vision
