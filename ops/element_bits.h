// A number as the bits of an element.
#pragma once
#include "espalier/core/cpu/cast_row.h"

namespace espalier {

/// The bits of `number` as an element of `dtype`, which has the size of T.
template <class T>
T element_bits(double number, DType dtype) {
  T bits;
  cast_row(DType::float64, dtype)(1, &bits, &number, 1);
  return bits;
}

}  // namespace espalier
