// Some rows of a dataset, the same ones in each epoch.
#pragma once
#include <cstdint>
#include <functional>
#include <source_location>
#include <vector>

#include "espalier/data/views/row_view.h"

namespace espalier::data {

// Views read from their source when they are read, copy nothing, and may be views of views. They tell the
// source epoch and seed, so that augmentation below them is as repeatable as without them. All throw
// DataError where the dataset is null.

/// These rows, in this order; a row may come several times. Throws IndexError for one that does not exist.
DatasetPtr select(DatasetPtr dataset, std::vector<int64_t> rows,
                  std::source_location where = std::source_location::current());

/// The first `count` rows, or all if there are fewer. Throws DataError if `count` is negative.
DatasetPtr take(DatasetPtr dataset, int64_t count,
                std::source_location where = std::source_location::current());

/// All but the first `count` rows. Throws DataError if `count` is negative.
DatasetPtr skip(DatasetPtr dataset, int64_t count,
                std::source_location where = std::source_location::current());

/// Rows `index`, `index + count`, `index + 2 count`, …: one of `count` parts whose numbers of rows differ by
/// one at most. Executors that train on several replicas need no shards: they divide each batch. Throws
/// DataError unless 0 <= index < count.
DatasetPtr shard(DatasetPtr dataset, int64_t index, int64_t count,
                 std::source_location where = std::source_location::current());

/// All rows `times` times in one epoch. Augmentation draws other numbers each time. Throws DataError if
/// `times` is negative, or there are more rows than 64 bits count.
DatasetPtr repeat(DatasetPtr dataset, int64_t times,
                  std::source_location where = std::source_location::current());

/// The rows for which `keep` returns true. It is called once for each row, now, with a tensor for each
/// column, without the axis of rows, as `Dataset::read` reads it. What it throws is thrown.
DatasetPtr filter(DatasetPtr dataset, const std::function<bool(const std::vector<Tensor>&)>& keep,
                  std::source_location where = std::source_location::current());

}  // namespace espalier::data
