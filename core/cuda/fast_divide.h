// Division by a divisor known at launch: a multiplication and a shift, on the host as well.
#pragma once
#include <bit>
#include <cstdint>

#include "espalier/core/philox.h"

namespace espalier::cu {

/// Divides numbers below 2^31 by one from 1 to 2^31. Granlund and Montgomery, Division by invariant integers
/// using multiplication, 1994.
struct FastDivide {
  uint32_t divisor = 1, multiplier = 1, shift = 0;

  FastDivide() = default;
  explicit FastDivide(uint32_t d) : divisor(d), shift(static_cast<uint32_t>(std::bit_width(d - 1))) {
    multiplier = static_cast<uint32_t>((((uint64_t{1} << shift) - d) << 32) / d + 1);
  }

  ESPALIER_HD uint32_t quotient(uint32_t n) const {
    return (static_cast<uint32_t>(static_cast<uint64_t>(n) * multiplier >> 32) + n) >> shift;
  }
};

/// The same interface for numbers that need 64 bits.
struct PlainDivide {
  int64_t divisor = 1;

  PlainDivide() = default;
  explicit PlainDivide(int64_t d) : divisor(d) {}

  ESPALIER_HD int64_t quotient(int64_t n) const { return n / divisor; }
};

}  // namespace espalier::cu
