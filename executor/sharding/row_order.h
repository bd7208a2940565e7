// In which order values have the rows of a batch along one of their axes, see BatchValue.
#pragma once
#include <cstddef>
#include <vector>

#include "espalier/core/shape.h"
#include "espalier/executor/sharding/batch_sharding.h"

namespace espalier {

bool same_order(const BatchValue& a, const BatchValue& b);

/// Values that are put behind each other along their rows: the order of the first, then that of the second,
/// and so on, as repetitions of what comes first.
BatchValue joined_rows(const std::vector<BatchValue>& values, size_t axis);

/// The rows that a view of `rows` has along an axis: unshardable where one position would be of several.
BatchValue rows_in_view(BatchValue rows, const Layout& from, const Layout& to, size_t axis);

}  // namespace espalier
