// The kernels of convolution and its gradients: cuDNN, and Espalier's own where cuDNN has none.
#include "espalier/ops/cuda/kernels.h"

#include <optional>

#include "espalier/core/error.h"
#include "espalier/ops/convolution/cudnn/cudnn_convolution.h"
#include "espalier/ops/convolution/cudnn/moved_kernels.h"
#include "espalier/ops/cuda/channels_second.h"
#include "espalier/ops/cuda/contiguous_input.h"

namespace espalier::cu {

namespace {

/// Copies of operands that do not lie as the library reads them are renewed before each run.
struct CudnnKernel {
  std::optional<MovedKernels> kernels;
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
      result == ConvolutionResult::y   ? form.checked_sizes(a.shape(), b.shape(), out->shape())
      : result == ConvolutionResult::x ? form.checked_sizes(out->shape(), b.shape(), a.shape())
                                       : form.checked_sizes(a.shape(), out->shape(), b.shape());
  std::shared_ptr<CudnnKernel> kernel;
  try {
    Workspace workspace = Workspace::of(context);
    std::optional<MovedKernels> kernels;
    if (form.channels_last) kernels.emplace(result == ConvolutionResult::kernels ? *out : b, workspace);
    const cudnnTensorFormat_t format = form.channels_last ? CUDNN_TENSOR_NHWC : CUDNN_TENSOR_NCHW;
    kernel = std::make_shared<CudnnKernel>(
        CudnnKernel{std::move(kernels), CudnnConvolution(sizes, result, out->dtype(), workspace, format),
                    ContiguousInput(a), ContiguousInput(b)});
  } catch (const UnsupportedError&) {
    if (!form.channels_last) return bind_direct_convolution(op, call);
    const bool to_kernels = result == ConvolutionResult::kernels;
    return bind_channels_second(
        op, call, form.axes(), {to_kernels ? size_t{2} : size_t{1}}, to_kernels,
        [&](const Op& other, const KernelCall& moved) { return bind_cudnn(other, moved, context, result); });
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
