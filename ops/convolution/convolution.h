// The ops of a convolution, each linear in both of its operands: their gradients are made of each other.
#pragma once
#include "espalier/core/variable.h"
#include "espalier/ops/convolution/sizes.h"

namespace espalier {

/// x [batch, channels, sizes…] convolved with kernels [channels of the result, channels / groups, sizes…].
Variable convolution(const Variable& x, const Variable& kernels, const ConvolutionForm& form,
                     const std::source_location& where);
/// The transpose: what `g` would give to an x by `convolution`. The axes of the result are as long as its
/// windows reach, and `more`, and without what is padding.
Variable convolution_transpose(const Variable& g, const Variable& kernels, const ConvolutionForm& form,
                               const Dims& more, const std::source_location& where);

}  // namespace espalier
