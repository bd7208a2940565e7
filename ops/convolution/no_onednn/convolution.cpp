// In place of ../onednn: convolutions of a library without oneDNN.
#include "espalier/core/error.h"
#include "espalier/ops/convolution/onednn_convolution.h"

namespace espalier {

std::unique_ptr<ConvolutionMethod> onednn_convolution(const ConvolutionSizes&, ConvolutionResult,
                                                      const ConvolutionStrides&, Workspace,
                                                      const ConvolutionAfter&) {
  throw UnsupportedError("conv: this Espalier was built without oneDNN");
}
std::optional<int64_t> onednn_workspace_bytes(const ConvolutionSizes&, ConvolutionResult,
                                              const ConvolutionStrides&, const ConvolutionAfter&) {
  return std::nullopt;
}

}  // namespace espalier
