// A dataset whose rows several threads read.
#pragma once
#include <cstdint>
#include <source_location>

#include "espalier/data/views/row_view.h"

namespace espalier::data {

struct ParallelOptions {
  int64_t workers = 4;  ///< threads, among which the rows of each batch are divided
  /// Seconds that the rows of a batch may take; 0: any time. With a limit, rows are read beside their place
  /// and copied.
  double timeout = 0;
};

/// The same rows, read by threads of its own: for a Distributor over a dataset that takes long to read.
/// Batches are those without it, in the same order, for what a row has follows from row, epoch and seed.
/// `read_in` of the dataset is called from several threads at once. What it throws reaches the reader. Throws
/// DataError, when rows are read: they take longer than the limit, naming worker and rows, or the dataset
/// throws EndOfData. A worker that has exceeded the limit is left to itself, and the dataset stays until it
/// returns. In a forked child, which does not have the threads, rows are read in place. Throws DataError: a
/// null dataset, or options that make no sense.
DatasetPtr parallel(DatasetPtr dataset, const ParallelOptions& options = {},
                    std::source_location where = std::source_location::current());

}  // namespace espalier::data
