// Batches that are filled up to one of a few numbers of rows, so that fewer plans are made.
#pragma once
#include <vector>

#include "espalier/executor/training/setup.h"

namespace espalier {

/// The batch with the rows of the smallest bucket that holds it. Without one, and without rows, it is the
/// batch itself. Throws UnsupportedError unless all placeholders but scalars show as many rows.
BatchSignature in_bucket(const BatchSignature& batch, const TreeFeeds& feeds,
                         const std::vector<int64_t>& buckets);

/// A tensor whose last row is repeated until there are so many.
Tensor with_last_row_repeated(const Tensor& tensor, int64_t rows);

/// The rows of the results of a step of inference. Throws UnsupportedError for a result that is not made of
/// the rows of the batch one by one, so that added rows would change it, naming the operation.
ResultRows rows_of_results(const Setup& setup, const BatchSignature& batch);

}  // namespace espalier
