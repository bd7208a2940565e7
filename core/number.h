// Number: a C++ number that becomes an element of a tensor.
#pragma once
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "espalier/core/dtype.h"

namespace espalier {

class Tensor;

/// What a C++ number becomes when no dtype is named: reals float32, integers int64, bool bool.
template <class T>
constexpr DType default_dtype() {
  if constexpr (std::is_same_v<T, bool>) return DType::boolean;
  return std::is_floating_point_v<T> ? DType::float32 : DType::int64;
}

namespace detail {

/// A C++ number, whole: int64_t cannot hold all of uint64_t, nor double all of int64_t.
struct Number {
  template <class T>
  requires std::is_arithmetic_v<T>
  explicit Number(T number) : real(static_cast<double>(number)), dtype(default_dtype<T>()) {
    if constexpr (std::is_integral_v<T>) {
      fits_integer = std::is_signed_v<T> || static_cast<uint64_t>(number) <= uint64_t{INT64_MAX};
      integer = fits_integer ? static_cast<int64_t>(number) : INT64_MAX;
    } else {
      overflows = std::isfinite(number) && !std::isfinite(real);
    }
  }
  /// A scalar of that dtype. Throws TypeError when it has no such value.
  Tensor as(DType other) const;

  double real = 0;
  int64_t integer = 0;
  DType dtype = DType::float32;
  bool fits_integer = false;  // and is an integer
  bool overflows = false;     // finite as a long double, but beyond the doubles
};

/// An element of a list of numbers of several types.
struct ListedNumber : Number {
  template <class T>
  requires std::is_arithmetic_v<T> ListedNumber(T number) : Number(number) {}
};

}  // namespace detail
}  // namespace espalier
