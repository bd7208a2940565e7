// CRC-64/XZ (ECMA-182, reflected): finds every change of one or two bits, and every one within 64 bits in a
// row.
#pragma once
#include <cstddef>
#include <cstdint>

namespace espalier {

/// The checksum of what was added so far.
class Crc64 {
 public:
  void add(const void* from, size_t bytes);
  uint64_t value() const { return ~state_; }

 private:
  uint64_t state_ = ~uint64_t{0};
};

}  // namespace espalier
