// Casts that are the same.
#pragma once
#include <cstdint>
#include <type_traits>

#include "espalier/core/half.h"

namespace espalier {

/// The types in which a cast is compiled, of which several casts have the same: the bits of a bool are those
/// of a uint8; the sign of an integer matters neither to an integer that is cast to one, nor to one that is
/// cast from one as large, nor to whether it is 0.
template <class To, class From>
struct CastTypes {
  template <class T>
  static constexpr bool integral = std::is_integral_v<T> && !std::is_same_v<T, bool>;
  template <class T>
  struct SignedOf {
    using type = std::make_signed_t<T>;
  };
  template <class T, bool any_sign>
  using Signed = typename std::conditional_t<any_sign, SignedOf<T>, std::type_identity<T>>::type;

  using Number = std::conditional_t<std::is_same_v<From, bool>, uint8_t, From>;
  using to = Signed<To, integral<To> && integral<Number>>;
  using from = Signed<Number, integral<Number> && (std::is_same_v<To, bool> ||
                                                   (integral<To> && sizeof(To) <= sizeof(Number)))>;
};

}  // namespace espalier
