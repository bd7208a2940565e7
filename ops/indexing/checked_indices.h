// Indices that are checked in the name of the function that the user called.
#pragma once
#include <string_view>

#include "espalier/core/variable.h"

namespace espalier {

/// The same indices, int32 or int64. Throws IndexError, naming `function`, for one outside of an axis of
/// `like`, of which it reads the shape; negative ones count from the end if `from_end`.
Variable checked_indices(const Variable& indices, const Variable& like, int64_t axis, bool from_end,
                         std::string_view function);

/// gather_nd, whose errors name `function`.
Variable gather_nd_for(std::string_view function, const Variable& x, const Variable& indices);

}  // namespace espalier
