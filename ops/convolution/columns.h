// Convolution by matrix products: the windows of an image become the columns of a matrix (im2col).
#pragma once
#include "espalier/core/tensor.h"
#include "espalier/ops/convolution/sizes.h"

namespace espalier {

// All tensors are contiguous, of one dtype: float32 or float64. `columns` is scratch memory of this shape.
// Chellapilla et al., High performance convolutional neural networks for document processing, 2006.
Shape columns_shape(const ConvolutionSizes& sizes);

/// y = x convolved with the kernels.
void convolve_by_columns(const ConvolutionSizes& sizes, const Tensor& x, const Tensor& kernels, Tensor& y,
                         const Tensor& columns);
/// The gradient of x where y has the gradient g.
void convolve_back_by_columns(const ConvolutionSizes& sizes, const Tensor& g, const Tensor& kernels,
                              Tensor& x, const Tensor& columns);
/// The gradient of the kernels where y has the gradient g.
void correlate_by_columns(const ConvolutionSizes& sizes, const Tensor& x, const Tensor& g, Tensor& kernels,
                          const Tensor& columns);

}  // namespace espalier
