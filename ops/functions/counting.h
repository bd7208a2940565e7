// Counting equal elements. The sizes of these results depend on values, so they are computed from the values
// of the moment: an operand downstream of a feed throws UnsupportedError, unless the size is given.
#pragma once
#include <cstdint>
#include <optional>

#include "espalier/core/variable.h"

namespace espalier {

struct UniqueOptions {
  bool inverse = false;  ///< ask for UniqueElements::inverse
  bool counts = false;   ///< ask for UniqueElements::counts
};
struct UniqueElements {
  Variable values;   ///< [n]: the distinct elements, ascending; each NaN is one
  Variable inverse;  ///< int64, of the operand's shape: values[inverse] is the operand
  Variable counts;   ///< int64, [n]: how often each occurs
};
/// The distinct elements of `x`, of any type. Without gradients. A plan in which their number is another than
/// when the tree was written throws UnsupportedError.
UniqueElements unique(const Operand& x, const UniqueOptions& options = {});

struct BincountOptions {
  Variable weights = {};               ///< of the shape of `x`; undefined: all count 1, in int64
  int64_t min_length = 0;              ///< the least number of bins
  std::optional<int64_t> length = {};  ///< the number of bins, which then does not depend on values
};
/// [bins]: how often each number 0, 1, … occurs in `x`, int32 or int64 of any shape, or the sums of the
/// weights there. Differentiable in the weights. Throws IndexError for negative numbers, and for numbers that
/// are no bin.
Variable bincount(const Operand& x, const BincountOptions& options = {});

/// [bins], int64: how many elements of `x`, reals, are in each of `bins` intervals of one width between `low`
/// and `high`; the last one includes `high`. Elements outside, NaN included, are not counted. Throws Error
/// unless bins >= 1, low < high, and their distance is finite.
Variable histogram(const Operand& x, int64_t bins, double low, double high);

}  // namespace espalier
