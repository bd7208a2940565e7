// Types in which kernels move elements whose values they do not look at.
#pragma once
#include <cstdint>

#include "espalier/core/cuda/runtime.h"
#include "espalier/core/dtype.h"

namespace espalier::cu {

/// Calls `f(TypeTag<W>{})` with an unsigned type of `bytes`, for kernels that only move elements.
template <class F>
void visit_words(int64_t bytes, F&& f) {
  switch (bytes) {
    case 16: return f(TypeTag<uint4>{});
    case 8: return f(TypeTag<uint64_t>{});
    case 4: return f(TypeTag<uint32_t>{});
    case 2: return f(TypeTag<uint16_t>{});
    default: return f(TypeTag<uint8_t>{});
  }
}

/// The largest word size, in bytes, in which rows of `row` bytes can be moved.
inline int64_t word_bytes(int64_t row, const void* from, const void* to) {
  const auto all =
      static_cast<uint64_t>(row) | reinterpret_cast<uintptr_t>(from) | reinterpret_cast<uintptr_t>(to) | 16u;
  return static_cast<int64_t>(all & -all);
}

}  // namespace espalier::cu
