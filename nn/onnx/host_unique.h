// Distinct slices of a constant.
#pragma once
#include <cstdint>
#include <optional>

#include "espalier/core/tensor.h"

namespace espalier::onnx {

struct UniqueSlices {
  Tensor values;   ///< the distinct slices, along the axis
  Tensor first;    ///< int64: where each occurs first
  Tensor inverse;  ///< int64: for each slice its number among the distinct ones
  Tensor counts;   ///< int64
};
/// Of an axis, or of all elements; in ascending order, or in the order of their first occurrence.
UniqueSlices unique_slices(const Tensor& x, std::optional<int64_t> axis, bool sorted);

}  // namespace espalier::onnx
