// Prefetches of rows that are picked from a table: the next ones come from memory while one is copied.
#pragma once
#include <algorithm>
#include <cstdint>

namespace espalier {

/// How many rows of so many bytes to be ahead: as many lines as a core has under way at a time.
inline int64_t rows_ahead(int64_t bytes) {
  constexpr int64_t under_way = 2048;
  return std::clamp<int64_t>(under_way / std::max<int64_t>(bytes, 1), 1, 16);
}

/// Starts to load the cache lines of a row, as many as are worth it: longer rows the processor foresees.
inline void prefetch_row(const char* row, int64_t bytes) {
  constexpr int64_t line = 64, most = 1024;
  const char* const last = row + std::min(bytes, most) - 1;
  for (; row < last; row += line) __builtin_prefetch(row);
  __builtin_prefetch(last);
}

}  // namespace espalier
