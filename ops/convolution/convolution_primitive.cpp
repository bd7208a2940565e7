#include "espalier/ops/convolution/convolution_primitive.h"

#include <utility>

#include "espalier/core/cpu/vectorize.h"
#include "espalier/ops/convolution/onednn_convolution.h"
#include "espalier/ops/convolution/window_products.h"
#include "espalier/ops/convolution/winograd_convolution.h"
#include "espalier/ops/functions/winograd.h"
#include "espalier/ops/matmul/onednn_gemm.h"

namespace espalier {

namespace {

/// Whether the processor has the vectors for which the kernels are written and were measured. oneDNN has
/// Winograd's algorithm for AVX-512, and better kernels than the baseline for older processors.
bool has_vectors() {
#ifdef __x86_64__
  return vector_level() == VectorLevel::avx2;
#else
  return true;
#endif
}

enum class Method : uint8_t { winograd, window_products, onednn };

Method fastest_method(const ConvolutionSizes& sizes, ConvolutionResult result,
                      const ConvolutionStrides& strides, const ConvolutionAfter& after) {
  if (strides.dtype == DType::float32 && uses_winograd() && has_vectors() &&
      winograd::is_faster(sizes, result, strides, after))
    return Method::winograd;
  const bool by_products = has_onednn() ? window_products::is_faster(sizes, result, strides, after)
                                        : window_products::computes(sizes, strides, after);
  return by_products ? Method::window_products : Method::onednn;
}

std::unique_ptr<ConvolutionMethod> make_method(const ConvolutionSizes& sizes, ConvolutionResult result,
                                               const ConvolutionStrides& strides, Workspace workspace,
                                               const ConvolutionAfter& after) {
  switch (fastest_method(sizes, result, strides, after)) {
    case Method::winograd: return winograd::convolution(sizes, result, strides, std::move(workspace), after);
    case Method::window_products: return window_products::convolution(sizes, result, std::move(workspace));
    case Method::onednn: break;
  }
  return onednn_convolution(sizes, result, strides, std::move(workspace), after);
}

}  // namespace

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
    : method_(make_method(sizes, result, strides, std::move(workspace), after)) {}

std::optional<int64_t> ConvolutionPrimitive::workspace_bytes(const ConvolutionSizes& sizes,
                                                             ConvolutionResult result,
                                                             const ConvolutionStrides& strides,
                                                             const ConvolutionAfter& after) {
  switch (fastest_method(sizes, result, strides, after)) {
    case Method::winograd: return winograd::workspace_bytes(sizes, result, after);
    case Method::window_products: return window_products::workspace_bytes(sizes);
    case Method::onednn: break;
  }
  return onednn_workspace_bytes(sizes, result, strides, after);
}

}  // namespace espalier
