// The ops of regions: boxes [k, 4] of images [n, channels, height, width], whose numbers are `images` [k].
#pragma once
#include "espalier/core/variable.h"
#include "espalier/ops/regions/region_bins.h"

namespace espalier {

/// The mean of the samples of each bin: [k, channels, bins…].
Variable roi_align_bins(const Variable& x, const Variable& boxes, const Variable& images, const RoiForm& form,
                        const std::source_location& where);
/// Where in x, by row-major numbers, the corner of a sample of each bin is that is largest when weighted, and
/// its weight: see LargestCorner. -1 and 0 for a bin without samples. They have no gradient.
struct LargestCorners {
  Variable places, shares;
};
LargestCorners roi_align_argmax(const Variable& x, const Variable& boxes, const Variable& images,
                                const RoiForm& form, const std::source_location& where);
/// The row-major number in x of the largest element of each bin, -1 for a bin without elements: int64. The
/// first of equal ones; a NaN is larger than all numbers. It has no gradient.
Variable roi_argmax(const Variable& x, const Variable& boxes, const Variable& images, const RoiForm& form,
                    const std::source_location& where);

/// The shape of the result. Throws ShapeError or TypeError naming `op` unless the operands are such.
Shape check_regions(const Spec& x, const Spec& boxes, const Spec& images, const RoiForm& form,
                    std::string_view op);
OpPtr roi_align_argmax_op(const RoiForm& form);
OpPtr roi_argmax_op(const RoiForm& form);

}  // namespace espalier
