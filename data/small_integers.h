// What integers of 8 and 16 bits in a file become.
#pragma once
#include "espalier/core/tensor.h"

namespace espalier::data {

enum class SmallIntegers : uint8_t {
  widen,  ///< int32, which operations compute with
  keep,   ///< int8, uint8 and int16, which take a quarter or a half of the memory: cast() them where they are
          ///< read
};

/// The elements as they are, or int8, uint8 and int16 in int32.
inline Tensor stored_as(SmallIntegers small, const Tensor& tensor) {
  return small == SmallIntegers::widen && is_small_integer(tensor.dtype()) ? tensor.to(int32) : tensor;
}

}  // namespace espalier::data
