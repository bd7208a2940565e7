// Non-maximum suppression: the best of boxes that overlap.
#pragma once
#include <cstdint>
#include <optional>

#include "espalier/core/variable.h"

namespace espalier {

// Boxes are two opposite corners, x1, y1, x2, y2. A box is dropped if a kept one of a higher score (of equal
// ones, the first is higher) has more than `threshold` of their union in common with it. How many are kept
// depends on values: as `nonzero`, this is computed on the host and eagerly, and UnsupportedError downstream
// of a feed. It has no gradient. ShapeError, TypeError; Error for a threshold that is NaN.

/// The indices of the kept boxes [n, 4], by descending scores [n]: int64. torchvision's nms.
Variable nms(const Operand& boxes, const Operand& scores, double threshold);
/// The same; boxes drop only those of their own class: classes [n], int32 or int64. torchvision's
/// batched_nms.
Variable batched_nms(const Operand& boxes, const Operand& scores, const Operand& classes, double threshold);

struct SuppressionOptions {
  std::optional<int64_t> most = {};  ///< boxes kept of each class of each image; at least 0
  double threshold = 0;
  std::optional<double> least_score = {};  ///< boxes of this score or less are left out
  bool centered = false;                   ///< boxes are x and y of the centre, width and height
};
/// Rows (image, class, box) [kept, 3], int64, for each image and class by descending scores: of boxes
/// [images, n, 4] with scores [images, classes, n]. ONNX's NonMaxSuppression, where no `most` keeps none.
Variable non_max_suppression(const Operand& boxes, const Operand& scores,
                             const SuppressionOptions& options = {});

}  // namespace espalier
