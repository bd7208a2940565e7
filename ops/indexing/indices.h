// Reading and checking indices, for CPU kernels.
#pragma once
#include <utility>

#include "espalier/ops/pointwise.h"

namespace espalier {

inline void check_indices(const Spec& spec, std::string_view op) {
  if (spec.dtype != DType::int64 && spec.dtype != DType::int32)
    throw TypeError(
        fmt::format("{}: indices must be int32 or int64, not {}; cast() them first", op, name(spec.dtype)));
}

namespace detail {

/// The least and the largest of `count` numbers and 0.
template <class T>
std::pair<T, T> range_with_zero(const T* list, int64_t count) {
  std::pair<T, T> range{0, 0};
  auto* found = &range;
  vectorized([=]() __attribute__((always_inline)) {
    T low = 0, high = 0;
    for (int64_t i = 0; i < count; ++i) {
      low = list[i] < low ? list[i] : low;
      high = list[i] > high ? list[i] : high;
    }
    found->first = low;
    found->second = high;
  });
  return range;
}

/// Throws IndexError unless all of `count` indices lie in an axis of `size`; negative ones count from the
/// end, if allowed. `labels` are indices of classes, one for each row.
template <class T>
void check_range(const T* list, int64_t count, int64_t size, std::string_view op, bool from_end,
                 bool labels = false) {
  const int64_t least = from_end ? -size : 0;
  const auto [lowest, highest] = range_with_zero(list, count);
  if (count == 0 || (lowest >= least && highest < size)) return;
  for (int64_t i = 0; i < count; ++i) {
    if (list[i] >= least && list[i] < size) continue;
    throw IndexError(labels ? fmt::format("{}: label {} of row {} is outside the {} classes, 0 to {}", op,
                                          list[i], i, size, size - 1)
                            : fmt::format("{}: index {} is outside an axis of size {}", op, list[i], size));
  }
}

}  // namespace detail

/// Calls `f(at, count)`, where at(i) returns index i; negative indices count from the end, if allowed. Throws
/// IndexError for an index outside `size`, before it calls f.
template <class F>
void with_indices(const Tensor& indices, int64_t size, std::string_view op, bool from_end, F&& f,
                  bool labels = false) {
  const Tensor flat = indices.contiguous_copy();
  const int64_t count = flat.elements();
  visit(flat.dtype(), [&]<class T>(TypeTag<T>) {
    if constexpr (std::is_same_v<T, int32_t> || std::is_same_v<T, int64_t>) {
      const T* list = static_cast<const T*>(flat.address());
      detail::check_range(list, count, size, op, from_end, labels);
      f(
          [=](int64_t i) __attribute__((always_inline)) {
            const int64_t index = list[i];
            return index < 0 ? index + size : index;
          },
          count);
    }
  });
}

/// The same for labels of `classes`.
template <class F>
void with_labels(const Tensor& labels, int64_t classes, std::string_view op, F&& f) {
  with_indices(labels, classes, op, false, std::forward<F>(f), true);
}

}  // namespace espalier
