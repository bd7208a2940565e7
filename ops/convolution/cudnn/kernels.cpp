// The kernels of convolution and its gradients: cuDNN, and Espalier's own where cuDNN has none.
#include "espalier/ops/cuda/kernels.h"
#include "espalier/core/error.h"
#include "espalier/ops/convolution/cudnn/cudnn_convolution.h"
#include "espalier/ops/cuda/contiguous_input.h"

namespace espalier::cu {

namespace {

/// Copies of operands that do not lie row by row are renewed before each run.
struct CudnnKernel {
  CudnnConvolution convolution;
  ContiguousInput first, second;
};

Bound bind_cudnn(const Op& op, const KernelCall& call, const BindContext& context, ConvolutionResult result) {
  Tensor* const out = call.outputs[0];
  const Tensor &a = *call.inputs[0], &b = *call.inputs[1];
  const ConvolutionForm form = ConvolutionForm::of(op);
  if (form.channels_last || out->elements() == 0 || a.elements() == 0 || b.elements() == 0 || !cudnn())
    return bind_direct_convolution(op, call);
  const ConvolutionSizes sizes =
      result == ConvolutionResult::y   ? form.sizes(a.shape(), b.shape(), out->shape())
      : result == ConvolutionResult::x ? form.sizes(out->shape(), b.shape(), a.shape())
                                       : form.sizes(a.shape(), out->shape(), b.shape());
  std::shared_ptr<CudnnKernel> kernel;
  try {
    kernel = std::make_shared<CudnnKernel>(
        CudnnKernel{CudnnConvolution(sizes, result, out->dtype(), Workspace::of(context)), ContiguousInput(a),
                    ContiguousInput(b)});
  } catch (const UnsupportedError&) {
    return bind_direct_convolution(op, call);
  }
  return bound([kernel, out, result](RandomStream) {
    kernel->first.refresh();
    kernel->second.refresh();
    void *first = const_cast<void*>(kernel->first.address()),
         *second = const_cast<void*>(kernel->second.address());
    switch (result) {
      case ConvolutionResult::y: return kernel->convolution.run(first, second, out->address());
      case ConvolutionResult::x: return kernel->convolution.run(out->address(), second, first);
      case ConvolutionResult::kernels: return kernel->convolution.run(first, out->address(), second);
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
