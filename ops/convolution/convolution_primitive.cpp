#include "espalier/ops/convolution/convolution_primitive.h"

#include <utility>

#include "espalier/ops/convolution/onednn_convolution.h"

namespace espalier {

bool has_convolution_primitive(DType dtype) {
  return dtype == DType::float32 || (dtype == DType::bfloat16 && onednn_has_bfloat16());
}

ConvolutionStrides convolution_strides(const ConvolutionForm& form, DType dtype, const Layout& x,
                                       const Layout& kernels, const Layout& y) {
  // Axes of size 1 may have any strides.
  const auto strides = [](const Layout& l) { return l.contiguous() ? Layout(l.shape).strides : l.strides; };
  return {form.channels_second(strides(x)), strides(kernels), form.channels_second(strides(y)), dtype,
          form.channels_last};
}

ConvolutionPrimitive::ConvolutionPrimitive(const ConvolutionSizes& sizes, ConvolutionResult result,
                                           const ConvolutionStrides& strides, Workspace workspace,
                                           const ConvolutionAfter& after)
    : method_(onednn_convolution(sizes, result, strides, std::move(workspace), after)) {}

int64_t ConvolutionPrimitive::workspace_bytes(const ConvolutionSizes& sizes, ConvolutionResult result,
                                              const ConvolutionStrides& strides,
                                              const ConvolutionAfter& after) {
  return onednn_workspace_bytes(sizes, result, strides, after);
}

}  // namespace espalier
