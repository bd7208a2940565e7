// Images read at places between their elements: grids of an affine map, and sampling at a grid.
#pragma once
#include <cstdint>

#include "espalier/core/variable.h"

namespace espalier {

// Coordinates run from −1 to 1 along each axis. With `align_corners` these are the centres of the first and
// the last element, else the outer edges of these two. The last axis of a grid has the coordinate along the
// innermost axis first: (x, y) of images [n, c, height, width], (x, y, z) of volumes. Jaderberg et al.,
// Spatial transformer networks, 2015. For finite coordinates, results are those of
// PyTorch.

/// The grid [n, sizes…, k] of the points theta · (p, 1) for all places p of an image of k axes with these
/// sizes, {height, width} for two: theta [n, k, k + 1]. For reals. ShapeError.
Variable affine_grid(const Operand& theta, const Shape& sizes, bool align_corners = false);

enum class SampleMode : uint8_t {
  linear,   ///< between the 2ᵏ nearest elements: bilinear in images
  nearest,  ///< the nearest element, of two the one with the even position
  cubic     ///< between four elements along each axis: bicubic in images, as Interpolation::cubic
};
/// What is outside an image.
enum class SamplePadding : uint8_t {
  zeros,      ///< zeros
  border,     ///< the outermost element
  reflection  ///< the image, mirrored at its borders again and again
};
struct GridSampleOptions {
  SampleMode mode = SampleMode::linear;
  SamplePadding padding = SamplePadding::zeros;
  bool align_corners = false;
};
/// `x` [n, c, sizes…] at the points of `grid` [n, outputs…, k], for any number k of axes: [n, c, outputs…].
/// Differentiable in both; nearest elements have no gradient by the grid. Reals of one dtype (TypeError);
/// 16-bit ones are computed in float32. ShapeError.
Variable grid_sample(const Operand& x, const Operand& grid, const GridSampleOptions& options = {});

}  // namespace espalier
