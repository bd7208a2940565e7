// Several datasets as one.
#pragma once
#include <cstdint>
#include <source_location>
#include <vector>

#include "espalier/data/views/row_view.h"

namespace espalier::data {

/// The rows of one dataset after those of the other. Open sizes are as large as the rows of any of them need.
/// Throws DataError: no datasets, a null one, or different columns.
DatasetPtr concat(std::vector<DatasetPtr> datasets,
                  std::source_location where = std::source_location::current());

/// The columns of one dataset beside those of the other. Throws DataError: no datasets, a null one, or
/// different numbers of rows.
DatasetPtr zip(std::vector<DatasetPtr> datasets,
               std::source_location where = std::source_location::current());

/// Rows of `size` rows each, which have one axis more: columns [rows / size, size, …]. What is left over is
/// left out. Throws DataError if `size` is below 1.
DatasetPtr batch(DatasetPtr dataset, int64_t size,
                 std::source_location where = std::source_location::current());

}  // namespace espalier::data
