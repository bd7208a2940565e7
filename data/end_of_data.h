// EndOfData that a dataset throws.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <span>

#include "espalier/core/error.h"

namespace espalier::data {

/// Calls `f`, which reads these rows. EndOfData of a dataset of one's own must not end a loop as if all had
/// been read: it becomes a DataError.
template <class F>
decltype(auto) read_all(std::span<const int64_t> rows, const F& f) {
  try {
    return f();
  } catch (const EndOfData&) {
    throw DataError(fmt::format("the dataset threw EndOfData for row {}{}, which it says it has",
                                rows.empty() ? 0 : rows[0], rows.size() > 1 ? " and those after it" : ""));
  }
}

}  // namespace espalier::data
