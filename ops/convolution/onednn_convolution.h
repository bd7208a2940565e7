// Convolutions and their gradients as oneDNN's primitives, in the layouts that are fastest there. A library
// that was built without oneDNN has no primitive for any sizes.
#pragma once
#include <memory>
#include <optional>

#include "espalier/core/workspace.h"
#include "espalier/ops/convolution/convolution_method.h"

namespace espalier {

/// Copies in the layouts of oneDNN, and scratch memory, are in the workspace. Throws UnsupportedError if
/// oneDNN has no primitive for the sizes. `after` is for ConvolutionResult::y alone.
std::unique_ptr<ConvolutionMethod> onednn_convolution(const ConvolutionSizes& sizes, ConvolutionResult result,
                                                      const ConvolutionStrides& strides, Workspace workspace,
                                                      const ConvolutionAfter& after);
/// What that takes of a workspace; nothing if oneDNN has no primitive.
std::optional<int64_t> onednn_workspace_bytes(const ConvolutionSizes& sizes, ConvolutionResult result,
                                              const ConvolutionStrides& strides,
                                              const ConvolutionAfter& after);

}  // namespace espalier
