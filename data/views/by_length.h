// Batches of rows of alike lengths.
#pragma once
#include <cstdint>
#include <source_location>

#include "espalier/core/tensor.h"
#include "espalier/data/views/row_view.h"

namespace espalier::data {

struct ByLengthOptions {
  int64_t batch_size = 32;  ///< of the feed over this view
  uint64_t seed = 0;        ///< for the order of the batches, and of rows of one length
};

/// All rows in an order in which each `batch_size` of them have the closest lengths, for sequences that a
/// batch fills up to its longest: `lengths` are integers [rows]. Batches come in a random order, the same in
/// each epoch unless a Distributor over the view has `shuffle_batches`; it must not shuffle rows. Over
/// `padded`, each batch is as long as its own longest row. Throws DataError for a null dataset, another
/// number of lengths than rows or a batch size below 1, and TypeError for lengths that are reals.
DatasetPtr by_length(DatasetPtr dataset, const Tensor& lengths, const ByLengthOptions& options = {},
                     std::source_location where = std::source_location::current());

}  // namespace espalier::data
