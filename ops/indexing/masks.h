// Where a mask holds, as numbers.
#pragma once
#include <string_view>

#include "espalier/core/variable.h"

namespace espalier {

/// The row-major numbers of the elements that are not zero: [count]. Throws UnsupportedError naming
/// `function` downstream of a feed, and in plans.
Variable numbers_of_nonzero(const Variable& x, std::string_view function);

}  // namespace espalier
