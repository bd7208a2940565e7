#include "espalier/nn/vision/parts.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/ops.h"

namespace espalier::nn::vision {

namespace {

class BlockState : public LayerStateOf<BlockState> {
 public:
  BlockState(const ModuleState& body, const BlockOptions& options)
      : LayerStateOf("Block"), relu_(options.relu) {
    for (const Entry& part : body.parts()) add_child(part.name, part.child);
    if (options.downsample) add_child(std::string(kShortcut), options.downsample->state());
  }
  bool calls_parts() const override { return true; }
  Variable forward(const Variable& x) override {
    Variable y = x, shortcut = x;
    for (const Entry& part : entries()) {
      LayerState& layer = static_cast<LayerState&>(*part.child);
      if (part.name == kShortcut)
        shortcut = layer.call(x);
      else
        y = layer.call(y);
    }
    return relu_ ? relu(y + shortcut) : y + shortcut;
  }

 private:
  static constexpr std::string_view kShortcut = "downsample";
  bool relu_;
};

}  // namespace

Conv2d unbiased_conv(int64_t in, int64_t out, const KernelOptions& options) {
  return Conv2d(in, out,
                {.kernel = options.kernel,
                 .stride = options.stride,
                 .padding = (options.kernel - 1) / 2,
                 .groups = options.groups,
                 .bias = false,
                 .initializer = init::KaimingNormal(0, init::Fan::out),
                 .dtype = options.dtype});
}

BatchNorm batch_norm_of(int64_t features, DType dtype) {
  return BatchNorm(features, {.dtype = is_half(dtype) ? float32 : dtype});
}

void check_model(std::string_view model, std::optional<int64_t> classes, int64_t channels, DType dtype) {
  if (classes && *classes < 1)
    throw Error(fmt::format("{}: {} classes; it needs at least one", model, *classes));
  if (channels < 1) throw Error(fmt::format("{}: images of {} channels", model, channels));
  if (!is_real(dtype))
    throw TypeError(fmt::format("{}: the dtype must be a real one, not {}", model, name(dtype)));
}

Block::Block(const Sequential& body, const BlockOptions& options)
    : LayerOf(std::make_shared<BlockState>(*body.state(), options)) {}

}  // namespace espalier::nn::vision
