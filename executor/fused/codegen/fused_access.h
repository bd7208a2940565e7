// Addresses in generated kernels: the layout of a tensor as arithmetic on rows and columns.
#pragma once
#include <string>
#include <vector>

#include "espalier/core/tensor.h"

namespace espalier::fused {

/// One axis of a layout: (number / divisor % size) * stride.
struct Term {
  int64_t divisor;
  int64_t size;
  int64_t stride;
  bool outermost;  ///< needs no remainder
};
using Terms = std::vector<Term>;

/// The sum of all terms of `number`: "c / 8 * 16 + c % 8".
std::string offset_text(const Terms& terms, const std::string& number);

/// How a thread loads its pack of adjacent elements.
enum class Reading : uint8_t {
  all,   ///< contiguous and aligned: one vector load
  same,  ///< one element, repeated
  each,  ///< one load each
};

/// The offset of an element: terms of its row plus terms of its column, or, for layouts that rows do not
/// divide, terms of its index.
struct Access {
  Terms row, column, element;
  bool divided = true;
  Reading reading = Reading::each;

  /// Whether all rows read the same elements.
  bool repeats_rows() const { return divided && row.empty(); }
};

/// `columns` is the length of a row, or 0 for a domain that is one row of any length. A thread loads `pack`
/// adjacent elements from an address of that alignment, in elements.
Access access(const Layout& layout, int64_t columns, int64_t pack, int64_t alignment);
/// A layout over the rows alone.
Terms terms_of(const Layout& layout);

}  // namespace espalier::fused
