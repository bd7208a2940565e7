// Ops by their names. A leaf and a custom op have names that users give, which may be those of ops.
#pragma once
#include <string_view>

#include "espalier/core/custom_op.h"
#include "espalier/core/op.h"

namespace espalier {

/// Whether this is Espalier's op of that name.
inline bool is_op(const Op& op, std::string_view name) {
  return op.name() == name && !op.is_leaf() && !is_custom_op(op);
}

}  // namespace espalier
