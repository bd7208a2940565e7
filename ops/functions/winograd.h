// Whether convolutions may use Winograd's algorithm.
#pragma once

namespace espalier {

/// Convolutions of float32 on a CPU, and their gradients, compute kernels of 3×3 with stride 1 by Winograd's
/// algorithm F(4×4, 3×3) where that is faster: with many windows and channels. Their rounding errors are some
/// 10⁻⁶ of the result's root mean square, ten times those of a direct convolution. `false` switches that off
/// for the whole process: for convolutions that are computed eagerly, and plans that are made, from then on.
/// Lavin and Gray, Fast algorithms for convolutional neural networks, 2016.
void set_winograd(bool on);
bool uses_winograd();

}  // namespace espalier
