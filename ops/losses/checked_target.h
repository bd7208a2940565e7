// Shapes of what is compared, in each batch: those of the tree say nothing of open axes and of rows of a
// feed.
#pragma once
#include <string_view>

#include "espalier/core/variable.h"

namespace espalier {

// Each throws ShapeError, which names `function` and both shapes, when it is written or in a batch.

/// `target`, whose shape is that of `scores`.
Variable checked_target(const Variable& target, const Variable& scores, std::string_view function);
/// `labels`, whose shape is that of `scores` without the last axis.
Variable checked_labels(const Variable& labels, const Variable& scores, std::string_view function);
/// `weights`, which are broadcast to the shape of `losses`.
Variable checked_weights(const Variable& weights, const Variable& losses, std::string_view function);

}  // namespace espalier
