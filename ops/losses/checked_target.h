// Shapes of what is compared, in each batch: those of the tree say nothing of open axes and of rows of a
// feed.
#pragma once
#include <string_view>

#include "espalier/core/variable.h"

namespace espalier {

/// `target`, whose shape is that of `scores`: with other sizes in a batch, ShapeError names `function` and
/// both.
Variable checked_target(const Variable& target, const Variable& scores, std::string_view function);
/// `labels`, whose shape is that of `scores` without the last axis.
Variable checked_labels(const Variable& labels, const Variable& scores, std::string_view function);

}  // namespace espalier
