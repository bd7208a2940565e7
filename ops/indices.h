// Reading and checking indices, for CPU kernels.
#pragma once
#include "espalier/ops/pointwise.h"

namespace espalier {

inline void check_indices(const Spec& spec, std::string_view op) {
  if (spec.dtype != DType::int64 && spec.dtype != DType::int32)
    throw TypeError(
        fmt::format("{}: indices must be int32 or int64, not {}; cast() them first", op, name(spec.dtype)));
}

/// Calls `f(at, count)`, where at(i) returns index i; negative indices count from the end, if allowed. Throws
/// IndexError for an index outside `size`, before it calls f.
template <class F>
void with_indices(const Tensor& indices, int64_t size, std::string_view op, bool from_end, F&& f) {
  const Tensor flat = indices.contiguous_copy();
  const int64_t count = flat.elements(), least = from_end ? -size : 0;
  visit(flat.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>) {
      const T* list = static_cast<const T*>(flat.address());
      for (int64_t i = 0; i < count; ++i)
        if (list[i] < least || list[i] >= size)
          throw IndexError(fmt::format("{}: index {} is outside an axis of size {}", op, list[i], size));
      f([=](int64_t i) { return list[i] < 0 ? list[i] + size : int64_t{list[i]}; }, count);
    }
  });
}

}  // namespace espalier
