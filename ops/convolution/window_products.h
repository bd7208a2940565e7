// Convolutions as one product of all windows with the kernels, which are read and written where they are.
#pragma once
#include <memory>

#include "espalier/core/workspace.h"
#include "espalier/ops/convolution/convolution_method.h"

namespace espalier::window_products {

/// Whether these are convolutions of float32 without groups, x and y have the channels last, without gaps,
/// nothing comes after, and all windows fit into 8 MiB.
bool computes(const ConvolutionSizes& sizes, const ConvolutionStrides& strides,
              const ConvolutionAfter& after);

/// Whether that takes less time than oneDNN's convolutions: there are few windows and many channels, so that
/// bringing the kernels into another layout, and back, takes long. Fitted to times on a processor with AVX2.
bool is_faster(const ConvolutionSizes& sizes, ConvolutionResult result, const ConvolutionStrides& strides,
               const ConvolutionAfter& after);

/// Of such sizes.
std::unique_ptr<ConvolutionMethod> convolution(const ConvolutionSizes& sizes, ConvolutionResult result,
                                               Workspace workspace);
/// What that takes of a workspace.
int64_t workspace_bytes(const ConvolutionSizes& sizes);

}  // namespace espalier::window_products
