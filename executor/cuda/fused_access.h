// Where a generated kernel finds the elements of a tensor: its layout as arithmetic on rows and columns.
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
  bool outermost;  ///< nothing to take the remainder of
};
using Terms = std::vector<Term>;

/// The sum of all terms of `number`: "c / 8 * 16 + c % 8".
std::string offset_text(const Terms& terms, const std::string& number);

/// How the elements that one thread computes side by side are read.
enum class Reading : uint8_t {
  all,   ///< they lie side by side: in one piece
  same,  ///< one for all
  each,  ///< one by one
};

/// A layout over a domain of rows: the offset is that of the row and that of the column; or, where the rows
/// do not divide it so, that of the element.
struct Access {
  Terms row, column, element;
  bool divided = true;
  Reading reading = Reading::each;

  /// Whether all rows are alike.
  bool repeats_rows() const { return divided && row.empty(); }
};

/// `columns` is the length of a row, or 0 for a domain that is one row of any length. `pack` elements side by
/// side are read by one thread, from an address with that alignment in elements.
Access access(const Layout& layout, int64_t columns, int64_t pack, int64_t alignment);
/// A layout over the rows alone.
Terms terms_of(const Layout& layout);

}  // namespace espalier::fused
