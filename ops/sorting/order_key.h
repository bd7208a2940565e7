// Elements as unsigned integers in the same order: a NaN is larger than all numbers, and zeros are equal.
#pragma once
#include <cstdint>
#include <type_traits>

#include "espalier/core/scalar.h"

namespace espalier {

/// The type of the keys of elements of type T, one of those that are computed in.
template <class T>
using OrderKey = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

template <class T>
ESPALIER_HD OrderKey<T> order_key(T x) {
  using Key = OrderKey<T>;
  constexpr Key sign = Key(1) << (8 * sizeof(Key) - 1);
  if constexpr (std::is_same_v<T, bool>) {
    return x ? 1 : 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<Key>(x) ^ sign;
  } else {
    if (x != x) return ~Key(0);
    const Key bits = __builtin_bit_cast(Key, x + T(0));  // -0 + 0 is 0
    return bits & sign ? ~bits : bits | sign;
  }
}

/// The same in descending order: the larger an element, the smaller its key.
template <class T>
ESPALIER_HD OrderKey<T> order_key(T x, bool descending) {
  const OrderKey<T> key = order_key(x);
  return descending ? static_cast<OrderKey<T>>(~key) : key;
}

}  // namespace espalier
