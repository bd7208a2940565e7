// The kernels of convolution and its gradients: cuDNN, and Espalier's own where cuDNN has none.
#include "espalier/ops/cuda/kernels.h"

#include <algorithm>
#include <optional>

#include "espalier/core/channels_last.h"
#include "espalier/core/error.h"
#include "espalier/ops/convolution/cudnn/cudnn_convolution.h"
#include "espalier/ops/cuda/contiguous_input.h"

namespace espalier::cu {

namespace {

/// Memory for the kernels of a convolution with the channels last, which have them second themselves.
class KernelsWithChannelsLast {
 public:
  KernelsWithChannelsLast(const Tensor& like, Workspace& workspace)
      : memory_(workspace.take(with_channels_last(like.shape()), like.dtype(), like.device())) {
    Layout layout = memory_.layout();
    for (Dims* list : {&layout.shape.dims(), &layout.strides})
      std::rotate(list->begin() + 1, list->end() - 1, list->end());
    seen_ = Tensor(memory_.storage(), layout, memory_.dtype());
  }

  void* address() const { return memory_.address(); }
  void read(const Tensor& kernels) { copy_elements(kernels, seen_); }
  void write(Tensor& kernels) const { copy_elements(seen_, kernels); }

 private:
  Tensor memory_, seen_;  ///< as the library has it, and with the channels second
};

/// Copies of operands that do not lie as the library reads them are renewed before each run.
struct CudnnKernel {
  std::optional<KernelsWithChannelsLast> kernels;
  CudnnConvolution convolution;
  ContiguousInput first, second;
};

Bound bind_cudnn(const Op& op, const KernelCall& call, const BindContext& context, ConvolutionResult result) {
  Tensor* const out = call.outputs[0];
  const Tensor &a = *call.inputs[0], &b = *call.inputs[1];
  const ConvolutionForm form = ConvolutionForm::of(op);
  if (out->elements() == 0 || a.elements() == 0 || b.elements() == 0 || !cudnn())
    return bind_direct_convolution(op, call);
  const ConvolutionSizes sizes =
      result == ConvolutionResult::y   ? form.sizes(a.shape(), b.shape(), out->shape())
      : result == ConvolutionResult::x ? form.sizes(out->shape(), b.shape(), a.shape())
                                       : form.sizes(a.shape(), out->shape(), b.shape());
  std::shared_ptr<CudnnKernel> kernel;
  try {
    Workspace workspace = Workspace::of(context);
    std::optional<KernelsWithChannelsLast> kernels;
    if (form.channels_last) kernels.emplace(result == ConvolutionResult::kernels ? *out : b, workspace);
    const cudnnTensorFormat_t format = form.channels_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    kernel = std::make_shared<CudnnKernel>(
        CudnnKernel{std::move(kernels), CudnnConvolution(sizes, result, out->dtype(), workspace, format),
                    ContiguousInput(a), ContiguousInput(b)});
  } catch (const UnsupportedError&) {
    return bind_direct_convolution(op, call);
  }
  return bound([kernel, out, weights = &b, result](RandomStream) {
    kernel->first.refresh();
    void* const first = const_cast<void*>(kernel->first.address());
    const CudnnConvolution& convolution = kernel->convolution;
    auto& moved = kernel->kernels;
    if (moved && result != ConvolutionResult::kernels)
      moved->read(*weights);
    else
      kernel->second.refresh();
    void* const second = const_cast<void*>(kernel->second.address());
    switch (result) {
      case ConvolutionResult::y:
        return convolution.run(first, moved ? moved->address() : second, out->address());
      case ConvolutionResult::x:
        return convolution.run(out->address(), moved ? moved->address() : second, first);
      case ConvolutionResult::kernels:
        convolution.run(first, moved ? moved->address() : out->address(), second);
        if (moved) moved->write(*out);
    }
  });
}

}  // namespace

void add_cudnn_kernels(KernelRegistry& kernels) {
  const auto add = [&](std::string_view name, ConvolutionResult result) {
    kernels.add(name, [result](const Op& op, const KernelCall& call, const BindContext& context) {
      return bind_cudnn(op, call, context, result);
    });
  };
  add("conv", ConvolutionResult::y);
  add("conv_transpose", ConvolutionResult::x);
  add("conv_kernels", ConvolutionResult::kernels);
}

}  // namespace espalier::cu
