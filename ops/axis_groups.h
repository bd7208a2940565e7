// Views that merge, split and join axes. Their sizes come from operands, so that one tree serves batches of
// any size.
#pragma once
#include <cstdint>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

/// The size of an axis of an operand: 0 is `x`, k is like[k - 1].
struct AxisOf {
  int64_t operand, axis;
};
/// `x` in the shape whose axis i has the product of the sizes groups[i]; the row-major order stays. Reads
/// only the shapes of `like`. A view.
Variable reshape_by(const Variable& x, const std::vector<Variable>& like,
                    const std::vector<std::vector<AxisOf>>& groups);

/// The elements at which both axes have the same index; axis `first` stays and `second` goes. Throws
/// ShapeError unless the axes differ and have one size. A view.
Variable take_diagonal(const Variable& x, int64_t first, int64_t second);
/// The transpose of take_diagonal: zeros in the shape of `like`, with the elements of `x` on that diagonal.
Variable put_diagonal_like(const Variable& x, const Variable& like, int64_t first, int64_t second);

}  // namespace espalier
