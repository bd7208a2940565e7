// Views that merge, split and join axes. Their sizes come from operands, so that one tree serves batches of
// any size.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

/// The size of an axis of an operand: 0 is `x`, k is like[k - 1]. Or a number, which is `axis` then.
struct AxisOf {
  static constexpr int64_t number = -1;
  int64_t operand, axis;
};
/// `x` in the shape whose axis i has the product of the sizes groups[i]; the row-major order stays. One group
/// may be the number -1: its size is inferred. Reads only the shapes of `like`. A view.
Variable reshape_by(const Variable& x, const std::vector<Variable>& like,
                    const std::vector<std::vector<AxisOf>>& groups);

}  // namespace espalier
