// Rows of a table that indices pick, for CPU kernels.
#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>

#include "espalier/core/cpu/prefetch.h"
#include "espalier/core/cpu/vectorize.h"

namespace espalier::detail {

/// out[i] = from[at(i)] for i from `begin` to `end`.
template <class T, class At>
void pick_elements(T* out, const T* from, At at, int64_t begin, int64_t end) {
  vectorized([=]() __attribute__((always_inline)) {
#pragma GCC ivdep
    for (int64_t i = begin; i < end; ++i) out[i] = from[at(i)];
  });
}

/// out[k · count + c] = from[k · size + at(k · count + c)] for lines k from `begin` to `end`.
template <class T, class At>
void pick_in_lines(T* out, const T* from, int64_t size, int64_t count, At at, int64_t begin, int64_t end) {
  vectorized([=]() __attribute__((always_inline)) {
    for (int64_t k = begin; k < end; ++k) {
      const int64_t first = k * count;
      const T* line = from + k * size;
#pragma GCC ivdep
      for (int64_t i = first; i < first + count; ++i) out[i] = line[at(i)];
    }
  });
}

/// Copies the rows at(begin) to at(end) of `bytes` each to the rows `begin` to `end` of `to`.
template <class At>
void pick_rows(char* to, const char* from, int64_t bytes, At at, int64_t begin, int64_t end) {
  const auto as = [=]<class T>(T*) {
    pick_elements(reinterpret_cast<T*>(to), reinterpret_cast<const T*>(from), at, begin, end);
  };
  switch (bytes) {
    case 1: return as(static_cast<uint8_t*>(nullptr));
    case 2: return as(static_cast<uint16_t*>(nullptr));
    case 4: return as(static_cast<uint32_t*>(nullptr));
    case 8: return as(static_cast<uint64_t*>(nullptr));
    default: break;
  }
  const int64_t ahead = rows_ahead(bytes);
  for (int64_t row = begin; row < end; ++row) {
    if (row + ahead < end) prefetch_row(from + at(row + ahead) * bytes, bytes);
    std::memcpy(to + row * bytes, from + at(row) * bytes, static_cast<size_t>(bytes));
  }
}

/// Calls f(block, begin, end) for the parts of `first` to `last` that lie in one block of `size`.
template <class F>
void each_block(int64_t first, int64_t last, int64_t size, F&& f) {
  for (int64_t i = first; i < last;) {
    const int64_t block = i / size, begin = i - block * size, end = std::min(size, begin + last - i);
    f(block, begin, end);
    i += end - begin;
  }
}

/// How many elements to load ahead of those that are written at random places of a table of so many bytes.
inline int64_t elements_ahead(int64_t bytes) { return bytes > 256 * 1024 ? 24 : 0; }

/// Calls f(i, at(i)) for i from 0 to `count`, in order, for elements of `to` that are read and written there.
template <class T, class At, class F>
[[gnu::always_inline]] inline void each_place(T* to, int64_t size, At at, int64_t count, F&& f) {
  int64_t i = 0;
  if (const int64_t ahead = elements_ahead(size * static_cast<int64_t>(sizeof(T))))
    for (; i + ahead < count; ++i) {
      __builtin_prefetch(to + at(i + ahead), 1);
      f(i, at(i));
    }
  for (; i < count; ++i) f(i, at(i));
}

}  // namespace espalier::detail
