// Rows of a table, for what has a name of its own in errors.
#pragma once
#include <string_view>

#include "espalier/core/variable.h"

namespace espalier {

/// gather(table, indices) along the first axis. IndexErrors name `function`, the user's function or layer.
/// Negative indices count from the end, or are refused.
Variable look_up(std::string_view function, const Variable& table, const Variable& indices, bool from_end);

}  // namespace espalier
