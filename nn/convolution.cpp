#include "espalier/nn/convolution.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/nn/layer_state.h"
#include "espalier/ops/views/window_numbers.h"

namespace espalier::nn {

namespace {

/// What convolutions and their transposes share: options of the type O, and the two parameters.
template <class Self, class O>
class KernelsState : public LayerStateOf<Self> {
 public:
  void create_for(int64_t in) {
    if (in <= 0) throw Error(fmt::format("{}: {} channels; it needs at least one", this->kind(), in));
    check_groups(in, this->kind());
    this->create(cpu(), float32, {{-1, open_size(in)}});
  }

 protected:
  KernelsState(std::string_view kind, size_t axes, int64_t out, O options)
      : LayerStateOf<Self>(kind), axes_(axes), options_(std::move(options)) {
    if (out <= 0) throw Error(fmt::format("{}: {} channels; it needs at least one", kind, out));
    if (options_.groups < 1) throw Error(fmt::format("{}: groups of {}", kind, options_.groups));
    check_groups(out, kind);
    if (options_.dtype && !is_real(*options_.dtype))
      throw TypeError(fmt::format("{}: the dtype must be a real one, not {}", kind, name(*options_.dtype)));
    if (options_.kernel.size() == 0) throw Error(fmt::format("{}: .kernel is missing", kind));
    (void)numbers_for_axes(options_.kernel, axes, 1, "kernel", kind);
    (void)numbers_for_axes(options_.stride, axes, 1, "stride", kind);
    (void)numbers_for_axes(options_.dilation, axes, 1, "dilation", kind);
  }
  void declare_parameters(int64_t out, Shape weight) {
    for (size_t i = 0; i < axes_; ++i) weight.dims().push_back(options_.kernel[i]);
    this->declare("weight", std::move(weight), options_.initializer, options_.dtype);
    if (options_.bias) this->declare("bias", {out}, init::Zeros(), options_.dtype);
  }

  /// Fits the parameters to the channels of an input.
  void fit_channels(const Variable& x) {
    if (x.rank() != axes_ + 2)
      throw ShapeError(fmt::format("{}: takes [batch, channels] and {} more {}, not {}", this->kind(), axes_,
                                   axes_ == 1 ? "axis" : "axes", x.shape().str()));
    const int64_t in = x.shape()[1];
    this->check_known(x, {{-1, in}});  // before it is divided
    if (in % options_.groups != 0)
      throw ShapeError(fmt::format("{}: the {} channels of {} cannot be divided into {} groups", this->kind(),
                                   size_text(in), x.shape().str(), options_.groups));
    this->fit(x, {{-1, open_size(in)}});
  }
  /// Of the weight, for so many channels of the input.
  virtual int64_t open_size(int64_t in) const = 0;
  const O& options() const { return options_; }

 private:
  void check_groups(int64_t channels, std::string_view kind) const {
    if (channels % options_.groups != 0)
      throw ShapeError(
          fmt::format("{}: {} channels cannot be divided into {} groups", kind, channels, options_.groups));
  }

  size_t axes_;
  O options_;
};

class ConvState : public KernelsState<ConvState, ConvOptions> {
 public:
  ConvState(std::string_view kind, size_t axes, int64_t out, ConvOptions options)
      : KernelsState(kind, axes, out, std::move(options)) {
    const ConvolutionPadding& padding = this->options().padding;
    for (size_t i = 0; i < padding.size() && !padding.keeps_sizes(); ++i)
      for (const int64_t number : {padding[i].before, padding[i].after})
        check_window_number(number, 0, "padding", kind);
    declare_parameters(out, {out, -1});
  }
  Variable forward(const Variable& x) override {
    fit_channels(x);
    const ConvolutionOptions how{options().stride, options().padding, options().dilation, options().groups};
    return options().bias ? conv(x, parameter("weight"), parameter("bias"), how)
                          : conv(x, parameter("weight"), how);
  }

 private:
  int64_t open_size(int64_t in) const override { return in / options().groups; }
};

class ConvTransposeState : public KernelsState<ConvTransposeState, ConvTransposeOptions> {
 public:
  ConvTransposeState(std::string_view kind, size_t axes, int64_t out, ConvTransposeOptions options)
      : KernelsState(kind, axes, out, std::move(options)) {
    declare_parameters(out, {-1, out / this->options().groups});
  }
  Variable forward(const Variable& x) override {
    fit_channels(x);
    const ConvTransposeOptions& o = options();
    const TransposedConvolutionOptions how{o.stride, o.padding, o.output_padding, o.dilation, o.groups};
    return o.bias ? conv_transpose(x, parameter("weight"), parameter("bias"), how)
                  : conv_transpose(x, parameter("weight"), how);
  }

 private:
  int64_t open_size(int64_t in) const override { return in; }
};

template <class State, class Options>
std::shared_ptr<LayerState> kernels_state(std::string_view kind, size_t axes, int64_t out, Options options,
                                          const std::source_location& where) {
  return located(where, [&] { return std::make_shared<State>(kind, axes, out, std::move(options)); });
}
std::shared_ptr<LayerState> conv_state(std::string_view kind, size_t axes, int64_t out, ConvOptions options,
                                       const std::source_location& where) {
  return kernels_state<ConvState>(kind, axes, out, std::move(options), where);
}
template <class State = ConvState>
void create_for_channels(LayerState& state, int64_t in, const std::source_location& where) {
  const CallScope scope(where);
  located(where, [&] { static_cast<State&>(state).create_for(in); });
}

}  // namespace

Conv1d::Conv1d(int64_t out, ConvOptions options, Where where)
    : LayerOf(conv_state("Conv1d", 1, out, std::move(options), where)) {}
Conv2d::Conv2d(int64_t out, ConvOptions options, Where where)
    : LayerOf(conv_state("Conv2d", 2, out, std::move(options), where)) {}
Conv3d::Conv3d(int64_t out, ConvOptions options, Where where)
    : LayerOf(conv_state("Conv3d", 3, out, std::move(options), where)) {}

Conv1d::Conv1d(int64_t in, int64_t out, ConvOptions options, Where where)
    : Conv1d(out, std::move(options), where) {
  create_for_channels(layer_state(), in, where);
}
Conv2d::Conv2d(int64_t in, int64_t out, ConvOptions options, Where where)
    : Conv2d(out, std::move(options), where) {
  create_for_channels(layer_state(), in, where);
}
Conv3d::Conv3d(int64_t in, int64_t out, ConvOptions options, Where where)
    : Conv3d(out, std::move(options), where) {
  create_for_channels(layer_state(), in, where);
}

ConvTranspose1d::ConvTranspose1d(int64_t out, ConvTransposeOptions options, Where where)
    : LayerOf(kernels_state<ConvTransposeState>("ConvTranspose1d", 1, out, std::move(options), where)) {}
ConvTranspose2d::ConvTranspose2d(int64_t out, ConvTransposeOptions options, Where where)
    : LayerOf(kernels_state<ConvTransposeState>("ConvTranspose2d", 2, out, std::move(options), where)) {}
ConvTranspose3d::ConvTranspose3d(int64_t out, ConvTransposeOptions options, Where where)
    : LayerOf(kernels_state<ConvTransposeState>("ConvTranspose3d", 3, out, std::move(options), where)) {}

ConvTranspose1d::ConvTranspose1d(int64_t in, int64_t out, ConvTransposeOptions options, Where where)
    : ConvTranspose1d(out, std::move(options), where) {
  create_for_channels<ConvTransposeState>(layer_state(), in, where);
}
ConvTranspose2d::ConvTranspose2d(int64_t in, int64_t out, ConvTransposeOptions options, Where where)
    : ConvTranspose2d(out, std::move(options), where) {
  create_for_channels<ConvTransposeState>(layer_state(), in, where);
}
ConvTranspose3d::ConvTranspose3d(int64_t in, int64_t out, ConvTransposeOptions options, Where where)
    : ConvTranspose3d(out, std::move(options), where) {
  create_for_channels<ConvTransposeState>(layer_state(), in, where);
}

}  // namespace espalier::nn
