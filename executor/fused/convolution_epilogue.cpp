#include "espalier/executor/fused/convolution_epilogue.h"

#include <algorithm>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/kept_values.h"
#include "espalier/core/op_names.h"
#include "espalier/ops/elementwise/cast.h"

namespace espalier {

namespace {

using Step = ChannelProgram::Step;

/// The numbers of all channels that an operand has, one after the other.
class ChannelNumbers {
 public:
  ChannelNumbers(const Step& step, const ConvolutionEpilogue& op, const KernelCall& call)
      : number_(step.number) {
    if (step.input) operand_ = call.inputs[op.seat(*step.input)];
    if (operand_ && operand_->elements() > 1) stride_ = operand_->layout().strides.back();
  }
  float operator[](int64_t channel) const {
    if (!operand_) return static_cast<float>(number_);
    if (operand_->dtype() == DType::bfloat16)
      return static_cast<float>(operand_->data<BFloat16>()[channel * stride_]);
    return operand_->data<float>()[channel * stride_];
  }

 private:
  const Tensor* operand_ = nullptr;
  double number_;
  int64_t stride_ = 0;
};

/// Scales kernels and packs them when leaves have changed, and convolves.
class BoundConvolution : public BoundKernel {
 public:
  BoundConvolution(const ConvolutionEpilogue& op, const KernelCall& call, ConvolutionPrimitive primitive,
                   KeptValues* kept)
      : op_(op), call_(call), kept_(kept), primitive_(std::move(primitive)) {
    channels_ = call.outputs[0]->shape()[-1];
    const int64_t bias_bytes = aligned_bytes(channels_ * static_cast<int64_t>(sizeof(float)));
    if (kept_) {
      const int64_t kernel_bytes = aligned_bytes(primitive_.packed_bytes());
      value_ = kept_->of(op.key() + primitive_.packed_layout(), kernel_bytes + bias_bytes);
      packed_ = static_cast<char*>(value_->address());
      bias_ = reinterpret_cast<float*>(packed_ + kernel_bytes);
    } else {
      own_ = Tensor({bias_bytes}, DType::boolean, Device());
      bias_ = static_cast<float*>(own_.address());
    }
  }

  void prepare() override {
    if (kept_) value_->update(kept_->version(), [&] { pack(); });
  }
  /// The kernels and what is multiplied and added for each channel.
  InputSet prepared_inputs() const override {
    InputSet inputs = InputSet::none();
    const auto residual = op_.channels().residual;
    for (size_t i = 1; i < call_.inputs.size(); ++i)
      if (!residual || i != op_.seat(*residual)) inputs.bits |= InputSet::only(i).bits;
    return inputs;
  }
  void run(RandomStream) override {
    if (kept_)
      prepare();
    else
      compute_bias(nullptr);
    const auto residual = op_.channels().residual;
    primitive_.run(call_.inputs[0]->address(), kept_ ? packed_ : call_.inputs[1]->address(),
                   call_.outputs[0]->address(), bias_,
                   residual ? call_.inputs[op_.seat(*residual)]->address() : nullptr);
  }

 private:
  /// scale · (y + …) as scale · y + bias.
  void compute_bias(float* scale) {
    std::fill_n(bias_, channels_, 0.0F);
    if (scale) std::fill_n(scale, channels_, 1.0F);
    for (const Step& step : op_.channels().steps) {
      const ChannelNumbers numbers(step, op_, call_);
      for (int64_t c = 0; c < channels_; ++c) {
        const float x = numbers[c];
        switch (step.kind) {
          case Step::Kind::add: bias_[c] += x; break;
          case Step::Kind::subtract: bias_[c] -= x; break;
          case Step::Kind::multiply: bias_[c] *= x, scale[c] *= x; break;
          case Step::Kind::divide: bias_[c] /= x, scale[c] /= x; break;
        }
      }
    }
  }
  void pack() {
    const Tensor kernels = call_.inputs[1]->to(DType::float32);
    std::vector<float> scale(static_cast<size_t>(channels_));
    compute_bias(scale.data());
    if (!op_.channels().scales()) return primitive_.pack(kernels.address(), packed_);
    // The primitive knows the strides of the kernels.
    Tensor scaled(kernels.shape(), DType::float32, Device());
    const Tensor plain = kernels.contiguous_copy();
    const int64_t size = kernels.elements() / channels_;
    const float* from = plain.data<float>();
    float* to = scaled.data<float>();
    for (int64_t c = 0; c < channels_; ++c)
      for (int64_t i = 0; i < size; ++i)
        to[c * size + i] = from[c * size + i] * scale[static_cast<size_t>(c)];
    primitive_.pack(scaled.address(), packed_);
  }

  const ConvolutionEpilogue& op_;
  const KernelCall call_;
  KeptValues* kept_;
  ConvolutionPrimitive primitive_;
  int64_t channels_ = 0;
  std::shared_ptr<KeptValue> value_;
  Tensor own_;
  char* packed_ = nullptr;
  float* bias_ = nullptr;
};

/// Rounds the kernels to the anchor's type, and computes the two parts with these.
class BoundWithRoundedKernels : public BoundKernel {
 public:
  BoundWithRoundedKernels(const ConvolutionEpilogue& op, const KernelCall& call, const BindContext& context)
      : cast_(cast_op(op.anchor_output().dtype)), kernels_(call.inputs[1]) {
    Workspace workspace = Workspace::of(context);
    rounded_ = workspace.take(kernels_->shape(), op.anchor_output().dtype, Device());
    KernelCall own = call;
    own.inputs[1] = &rounded_;
    KeptInputs none;
    BindContext with_rest = context;
    with_rest.offer(workspace);
    with_rest.offer(none);  // these kernels change in each run
    parts_ = op.EpilogueOp::bind_cpu(own, with_rest);
  }
  void run(RandomStream random) override {
    KernelCall call;
    call.inputs = {kernels_};
    call.outputs = {&rounded_};
    cast_->run_cpu(call);
    parts_->run(random);
  }

 private:
  const OpPtr cast_;
  const Tensor* kernels_;
  Tensor rounded_;
  std::unique_ptr<BoundKernel> parts_;
};

/// What oneDNN can read where it is, if it is x or the kernels.
bool is_dense(const Layout& layout) {
  return layout.shape.elements() > 0 &&
         std::ranges::all_of(layout.strides, [](int64_t stride) { return stride > 0; });
}

}  // namespace

bool ConvolutionEpilogue::anchors(const Op& op, DeviceType device) {
  return is_op(op, "conv") && (device != DeviceType::cpu || attribute<bool>(op, "channels_last"));
}

Attributes ConvolutionEpilogue::attributes() const {
  Attributes all = anchor().attributes();
  all.emplace_back("result", static_cast<int64_t>(program_input()));
  all.emplace_back("packed", !key_.empty());
  all.emplace_back("program", program().str());
  return all;
}

ConvolutionAfter ConvolutionEpilogue::after() const {
  return {.bias = !channels_.steps.empty(),
          .residual = channels_.residual.has_value(),
          .wide_residual = channels_.wide_residual,
          .activation = channels_.activation,
          .low = channels_.low,
          .high = channels_.high,
          .wide_y = program().instructions[program().outputs[0]].dtype == DType::float32,
          .packed = !key_.empty()};
}

bool ConvolutionEpilogue::reads(const SmallVector<const Layout*, 4>& inputs) const {
  // `pack` makes a plain copy of kernels that it scales or converts.
  const bool copies = channels_.scales() || (!key_.empty() && is_half(anchor_output().dtype));
  const bool kernels = copies ? inputs[1]->contiguous() : is_dense(*inputs[1]);
  return has_convolution_primitive(anchor_output().dtype) && kernels && is_dense(*inputs[0]) &&
         (!channels_.residual || inputs[seat(*channels_.residual)]->contiguous());
}

std::unique_ptr<BoundKernel> ConvolutionEpilogue::bind_parts(const KernelCall& call,
                                                             const BindContext& context) const {
  if (call.inputs[1]->dtype() == anchor_output().dtype) return EpilogueOp::bind_cpu(call, context);
  return std::make_unique<BoundWithRoundedKernels>(*this, call, context);
}

int64_t ConvolutionEpilogue::workspace_of_parts(const PlannedCall& call) const {
  const Spec rounded{anchor_output().dtype, call.inputs[1]->shape};
  if (call.inputs[1]->dtype == rounded.dtype) return EpilogueOp::workspace_bytes(call);
  const Layout plain(rounded.shape);
  PlannedCall own = call;
  own.inputs[1] = &rounded;
  own.layouts[1] = &plain;
  return Workspace::bytes_for(rounded) + EpilogueOp::workspace_bytes(own);
}

int64_t ConvolutionEpilogue::workspace_bytes(const PlannedCall& call) const {
  if (call.device != DeviceType::cpu || !reads(call.layouts)) return workspace_of_parts(call);
  const ConvolutionForm form = ConvolutionForm::of(anchor());
  const Layout out(anchor_output().shape);
  const std::optional<int64_t> bytes = ConvolutionPrimitive::workspace_bytes(
      form.checked_sizes(call.inputs[0]->shape, call.inputs[1]->shape, out.shape), ConvolutionResult::y,
      convolution_strides(form, anchor_output().dtype, *call.layouts[0], *call.layouts[1], out), after());
  return bytes ? *bytes : workspace_of_parts(call);
}

std::unique_ptr<BoundKernel> ConvolutionEpilogue::bind_cpu(const KernelCall& call,
                                                           const BindContext& context) const {
  SmallVector<const Layout*, 4> layouts;
  for (const Tensor* input : call.inputs) layouts.push_back(&input->layout());
  KeptValues* kept = key_.empty() ? nullptr : context.find<KeptValues>();
  if (!reads(layouts) || (!key_.empty() && !kept)) return bind_parts(call, context);
  const ConvolutionForm form = ConvolutionForm::of(anchor());
  const Layout out(anchor_output().shape);
  try {
    ConvolutionPrimitive primitive(
        form.checked_sizes(layouts[0]->shape, layouts[1]->shape, out.shape), ConvolutionResult::y,
        convolution_strides(form, anchor_output().dtype, *layouts[0], *layouts[1], out),
        Workspace::of(context), after());
    return std::make_unique<BoundConvolution>(*this, call, std::move(primitive), kept);
  } catch (const UnsupportedError&) {  // no method computes all: the program runs behind the convolution
    return bind_parts(call, context);
  }
}

}  // namespace espalier
