// Regions of interest: boxes of images [n, channels, height, width], each brought to one size.
#pragma once
#include <cstdint>

#include "espalier/core/variable.h"
#include "espalier/ops/functions/windows.h"

namespace espalier {

// Boxes are x1, y1, x2, y2 in units of `1 / scale` elements, [k, 4] with the numbers of their images,
// `images` [k] (int32 or int64), or [k, 5] with this number in front. Results are [k, channels, height,
// width]. Boxes have no gradient. ShapeError for other shapes, TypeError unless boxes have the dtype of the
// images, a real one; IndexError for an image that there is not; Error for other options. The bins along an
// axis have no more than 2^16 samples, or elements of the result, together (ShapeError).

struct RoiAlignOptions {
  PerAxis size;          ///< of the result: height and width, or one number for both
  double scale = 1;      ///< from the coordinates of the boxes to those of the images
  int64_t samples = 0;   ///< along each axis of a bin; 0: as many as the bin has elements, rounded up
  bool aligned = false;  ///< element i is at i + 1/2, not at i, and boxes may have any size above 0, not 1
  bool largest = false;  ///< the largest weighted element of the samples of a bin, not their mean
};
/// The mean of bilinear samples of each bin of a box, or the largest of the four elements of each, times
/// their weights. He et al., Mask R-CNN, 2017; torchvision's roi_align and ONNX's RoiAlign, whose half_pixel
/// is `aligned` and whose mode max is `largest`. A sample more than one element outside of the image is 0.
Variable roi_align(const Operand& x, const Operand& boxes, const RoiAlignOptions& options);
Variable roi_align(const Operand& x, const Operand& boxes, const Operand& images,
                   const RoiAlignOptions& options);

struct RoiPoolOptions {
  PerAxis size;
  double scale = 1;
};
/// The largest element of each bin of a box, which is rounded to whole elements; 0 for a bin without
/// elements. Girshick, Fast R-CNN, 2015; torchvision's roi_pool and ONNX's MaxRoiPool.
Variable roi_pool(const Operand& x, const Operand& boxes, const RoiPoolOptions& options);
Variable roi_pool(const Operand& x, const Operand& boxes, const Operand& images,
                  const RoiPoolOptions& options);

}  // namespace espalier
