// Convolutions and their gradients as oneDNN's primitives, in the layouts that are fastest there. A library
// that was built without oneDNN has no primitive for any sizes.
#pragma once
#include <memory>
#include <optional>

#include "espalier/core/workspace.h"
#include "espalier/ops/convolution/convolution_method.h"

namespace espalier {

/// Whether oneDNN is faster with bfloat16 than with float32: on processors with AMX, and on those of AMD with
/// AVX512-BF16. One of Intel with AVX512-BF16 alone took twice as long.
bool onednn_has_bfloat16();

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
