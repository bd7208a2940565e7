// Philox in bulk.
#pragma once
#include <cstdint>

#include "espalier/core/random.h"

namespace espalier::detail {

/// Writes the words of the blocks `first` to `first + blocks` of a stream, four for each.
void philox_words(RandomStream stream, uint64_t first, int64_t blocks, uint32_t* out);

}  // namespace espalier::detail
