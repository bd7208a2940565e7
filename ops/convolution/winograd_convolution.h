// Convolutions with kernels of 3×3 by Winograd's algorithms: y and the gradient of x by F(4×4, 3×3), and the
// gradient of kernels by F(3×3, 4×4).
#pragma once
#include <memory>

#include "espalier/core/workspace.h"
#include "espalier/ops/convolution/convolution_method.h"

namespace espalier::winograd {

/// Whether the kernels are 3×3, with stride 1, without dilation and groups.
bool computes(const ConvolutionSizes& sizes);

/// Whether that takes less time than oneDNN's direct convolutions. The time over theirs is estimated by the
/// products, by the transforms of tiles, which few channels share, and by those of kernels, which few tiles
/// share. Fitted to times on processors with AVX2.
bool is_faster(const ConvolutionSizes& sizes, ConvolutionResult result, const ConvolutionStrides& strides,
               const ConvolutionAfter& after);

/// Of such sizes. `after` is for ConvolutionResult::y alone.
std::unique_ptr<ConvolutionMethod> convolution(const ConvolutionSizes& sizes, ConvolutionResult result,
                                               const ConvolutionStrides& strides, Workspace workspace,
                                               const ConvolutionAfter& after);
/// What that takes of a workspace.
int64_t workspace_bytes(const ConvolutionSizes& sizes, ConvolutionResult result,
                        const ConvolutionAfter& after);

}  // namespace espalier::winograd
