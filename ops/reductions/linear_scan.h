// Linear recurrences along the last axis: the gradients of cumulative products and of logcumsumexp are made
// of them.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

struct LinearScanForm {
  bool reverse = false;  ///< from the last element to the first
  bool lagged = false;   ///< a term takes the coefficient of the term before
};
/// y[k] = b[k] + a[k]·y[k − 1], or lagged b[k] + a[k − 1]·y[k − 1]; in reverse with k + 1 in place of k − 1.
/// Reals of one shape [..., n].
Variable linear_scan(const Variable& a, const Variable& b, LinearScanForm form);
/// Elements moved by one along the last axis, towards its end or, if `reverse`, its beginning. The free
/// element is `fill`.
Variable shift_by_one(const Variable& x, bool reverse, double fill = 0);
/// The products of the elements from each one on, along an axis.
Variable cumprod_backwards(const Variable& x, int64_t axis);

}  // namespace espalier
