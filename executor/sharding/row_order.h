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

/// A sum of products, each of which is a sum over rows, or linear in one operand: the operands two by two,
/// the first of an odd number as it is.
BatchValue summed_products(const std::vector<BatchValue>& operands);

}  // namespace espalier
