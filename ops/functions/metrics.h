// How good predictions are, as Variables: eagerly, or in `ExecutorOptions::outputs`. No gradient passes
// through them.
#pragma once
#include <cstdint>

#include "espalier/core/variable.h"

namespace espalier {

/// The fraction of labels whose logit is the largest of its row, the first one if several are; float64.
/// logits [..., classes]; labels [...] or [..., 1] of integers. Throws ShapeError or TypeError.
Variable accuracy(const Operand& logits, const Operand& labels);
/// The fraction of labels whose logit is less than only `k` - 1 others of its row at most; equal ones count
/// for the label, and NaN counts against it. Throws ShapeError, TypeError, IndexError for a label that is no
/// class, Error unless k is from 1 to the number of classes.
Variable top_k_accuracy(const Operand& logits, const Operand& labels, int64_t k);

}  // namespace espalier
