// Rows of unequal lengths, as texts and series are.
#pragma once
#include <source_location>
#include <vector>

#include "espalier/core/tensor.h"
#include "espalier/data/views/row_view.h"

namespace espalier::data {

struct PaddedOptions {
  /// What fills up a row, for each column; 0 for those that are not named.
  std::vector<double> values = {};
  /// Add a column of the rows' own first sizes, int64 [rows], for each column that is not one of scalars:
  /// also if they happen to be equal, so that all parts of a data set have the same columns.
  bool lengths = false;
  /// Open sizes are filled up to multiples of it, so that fewer combinations come, each of which has a plan
  /// of its own in an executor.
  int64_t multiple = 1;
};

/// Columns of tensors, one for each row, whose sizes may differ: each batch is filled up at the ends to the
/// largest sizes that its rows have. Sizes that are the same in all rows stay fixed; others are open (-1),
/// and each combination of them has a plan of its own in an executor. The tensors are shared, not copied.
/// Throws DataError: no columns or rows, different numbers of rows, an undefined tensor, or another dtype or
/// rank than in the first row, a multiple below 1; TypeError for a value that the dtype does not have.
DatasetPtr padded(const std::vector<std::vector<Tensor>>& columns, const PaddedOptions& options = {},
                  std::source_location where = std::source_location::current());

}  // namespace espalier::data
