// The check of a result's shape.
#pragma once
#include <string_view>

#include "espalier/core/shape.h"

namespace espalier {

/// Throws ShapeError naming `op` for a negative size, and if 64 bits cannot count the elements.
void check_countable(const Shape& shape, std::string_view op);

}  // namespace espalier
