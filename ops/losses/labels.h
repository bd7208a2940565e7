// Labels of rows of logits.
#pragma once
#include <string_view>

#include "espalier/core/variable.h"

namespace espalier {

/// Labels [...] for logits [..., classes], given in this shape or as [..., 1]. Throws ShapeError or TypeError
/// naming `op`.
Variable labels_of_rows(const Variable& logits, const Variable& labels, std::string_view op);

}  // namespace espalier
