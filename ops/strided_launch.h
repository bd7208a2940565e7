// Addressing of strided operands in pointwise GPU kernels, with 32-bit indices.
#pragma once
#include <cstdint>
#include <span>

#include "espalier/core/cuda/fast_divide.h"
#include "espalier/core/small_vector.h"
#include "espalier/core/tensor.h"

namespace espalier::cu {

/// The output and up to three inputs.
inline constexpr size_t max_operands = 4;
inline constexpr int max_axes = 8;

/// An axis of units: its size, and the step between units in each operand, in elements.
struct WalkAxis {
  FastDivide size;
  int32_t step[max_operands];
};

/// How the elements of a unit are read or written.
enum class Access : uint8_t {
  whole,  ///< at once
  words,  ///< in words of four bytes
  each,   ///< one by one
  same,   ///< one element, broadcast
};

/// The operands of one launch; the first is the output. A thread computes units of the output: a few elements
/// of its innermost axis. If there is only one axis, the last unit may be partial.
struct StridedLaunch {
  void* data[max_operands];
  int32_t element_step[max_operands];  ///< within a unit
  Access access[max_operands];
  uint32_t unit;      ///< elements
  uint32_t units;     ///< in all
  uint32_t elements;  ///< in all
  int32_t axes;
  WalkAxis axis[max_axes];  ///< from the innermost on

  /// Computes the offset of a unit in each of the first K operands.
  template <size_t K>
  ESPALIER_HD void locate(uint32_t index, int32_t (&offset)[K]) const {
    for (size_t k = 0; k < K; ++k) offset[k] = 0;
    for (int a = 0; a + 1 < axes; ++a) {
      const uint32_t outer = axis[a].size.quotient(index);
      const int32_t here = static_cast<int32_t>(index - outer * axis[a].size.divisor);
      for (size_t k = 0; k < K; ++k) offset[k] += here * axis[a].step[k];
      index = outer;
    }
    for (size_t k = 0; k < K; ++k) offset[k] += static_cast<int32_t>(index) * axis[axes - 1].step[k];
  }
};

/// Launches with units of `unit` elements, or of 1 if that does not divide the rows; inputs are broadcast to
/// the output. There are several launches if an operand spans more than `reach` elements or has too many
/// axes, and none if the output is empty.
SmallVector<StridedLaunch, 1> strided_launches(const Tensor& output, std::span<const Tensor* const> inputs,
                                               uint32_t unit, int64_t reach = INT32_MAX);

}  // namespace espalier::cu
