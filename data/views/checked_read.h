// How rows of a dataset are read: every view and feed reads its source by these.
#pragma once
#include <cstdint>
#include <span>

#include "espalier/data/dataset.h"

namespace espalier::data {

/// `dataset.read_in` and `dataset.read`, by which a dataset of one's own may do wrong without its callers
/// noticing. A tensor that it assigns to an output, instead of writing into it, is copied to where it
/// belongs; throws DataError if it has another dtype or shape, and in the place of EndOfData, which must not
/// end a loop as if all had been read.
void checked_read(const Dataset& dataset, const ReadContext& context, std::span<const int64_t> rows,
                  std::span<Tensor> outputs);
void checked_read(const Dataset& dataset, std::span<const int64_t> rows, std::span<Tensor> outputs);

}  // namespace espalier::data
