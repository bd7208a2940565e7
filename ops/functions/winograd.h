// Whether convolutions may use Winograd's algorithm.
#pragma once

namespace espalier {

/// Convolutions of float32 on a CPU with AVX2 or AVX-512, or on an ARM, compute kernels of 3×3 with stride 1
/// by Winograd's algorithm F(4×4, 3×3), and the gradients of such kernels by F(3×3, 4×4), where that is
/// faster: with many windows and channels. Their rounding errors are some 10⁻⁶ of the result's root mean
/// square, ten times those of a direct convolution. Results are computed in tiles of 4×4, from tiles of 6×6:
/// an infinite number or NaN in x makes all elements of the tiles that read it NaN or infinite, also those
/// that a direct convolution would not compute of it; in a gradient of kernels, all of its channel's. `false`
/// switches that off for the whole process: for convolutions that are computed eagerly, and plans that are
/// made, from then on. Lavin and Gray, Fast algorithms for convolutional neural networks, 2016.
void set_winograd(bool on);
bool uses_winograd();

}  // namespace espalier
