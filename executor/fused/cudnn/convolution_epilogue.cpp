// Convolutions with the program behind them, by one call of cuDNN where it has one.
#include "espalier/executor/fused/convolution_epilogue.h"

#include "espalier/core/error.h"
#include "espalier/executor/fused/cuda/kernels.h"
#include "espalier/ops/convolution/cudnn/biased_convolution.h"
#include "espalier/ops/convolution/cudnn/moved_kernels.h"
#include "espalier/ops/cuda/contiguous_input.h"

namespace espalier::cu {

namespace {

class BoundBiasedConvolution : public BoundKernel {
 public:
  /// Throws UnsupportedError if cuDNN does not compute it in one call.
  BoundBiasedConvolution(const ConvolutionEpilogue& op, const KernelCall& call, Workspace workspace)
      : form_(ConvolutionForm::of(op.anchor())),
        kernels_(call.inputs[1]),
        out_(call.outputs[0]),
        x_(*call.inputs[0]),
        packed_kernels_(*call.inputs[1]),
        bias_(bias_of(op, call)) {
    const ChannelProgram& channels = op.channels();
    if (channels.residual) residual_.emplace(*call.inputs[op.seat(*channels.residual)]);
    if (form_.channels_last) moved_.emplace(*kernels_, workspace);
    convolution_.emplace(
        form_.checked_sizes(call.inputs[0]->shape(), kernels_->shape(), op.anchor_output().shape),
        BiasedForm{.residual = channels.residual.has_value(),
                   .relu = channels.activation == ConvolutionAfter::Activation::relu},
        out_->dtype(), std::move(workspace), form_.channels_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW);
  }

  void run(RandomStream) override {
    x_.refresh();
    bias_.refresh();
    if (residual_) residual_->refresh();
    moved_ ? moved_->read(*kernels_) : packed_kernels_.refresh();
    convolution_->run(x_.address(), moved_ ? moved_->address() : packed_kernels_.address(), bias_.address(),
                      residual_ ? residual_->address() : nullptr, out_->address());
  }

 private:
  static const Tensor& bias_of(const ConvolutionEpilogue& op, const KernelCall& call) {
    const Tensor& bias = *call.inputs[op.seat(*op.channels().steps[0].input)];
    if (bias.elements() != call.inputs[1]->shape()[0])
      throw UnsupportedError("cuDNN adds a bias to each channel");
    return bias;
  }

  ConvolutionForm form_;
  const Tensor* kernels_;
  Tensor* out_;
  ContiguousInput x_, packed_kernels_, bias_;
  std::optional<ContiguousInput> residual_;
  std::optional<MovedKernels> moved_;
  std::optional<BiasedConvolution> convolution_;
};

Bound bind_convolution_epilogue(const Op& anchored, const KernelCall& call, const BindContext& context) {
  const auto& op = static_cast<const ConvolutionEpilogue&>(anchored);
  try {
    // cuDNN takes no operand without elements.
    if (cudnn() && call.inputs[0]->elements() > 0 && call.inputs[1]->elements() > 0)
      return std::make_unique<BoundBiasedConvolution>(op, call, Workspace::of(context));
  } catch (const UnsupportedError&) {  // the program runs behind the convolution
  }
  return bind_epilogue(op, call, context);
}

}  // namespace

void add_cudnn_epilogue_kernels(KernelRegistry& kernels) {
  kernels.add("conv_epilogue", bind_convolution_epilogue);
}

}  // namespace espalier::cu
