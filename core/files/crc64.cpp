#include "espalier/core/files/crc64.h"

#include <array>
#include <bit>
#include <cstring>

namespace espalier {

namespace {

static_assert(std::endian::native == std::endian::little,
              "eight bytes are taken as one little-endian number");

using Table = std::array<uint64_t, 256>;

/// tables[k][b]: what byte b does to the remainder once k zero bytes have followed it.
constexpr std::array<Table, 8> make_tables() {
  constexpr uint64_t polynomial = 0xC96C5795D7870F42;
  std::array<Table, 8> tables{};
  for (uint64_t byte = 0; byte < 256; ++byte) {
    uint64_t remainder = byte;
    for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ (remainder & 1 ? polynomial : 0);
    tables[0][byte] = remainder;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint64_t before = tables[k - 1][byte];
      tables[k][byte] = before >> 8 ^ tables[0][before & 255];
    }
  return tables;
}

constexpr std::array<Table, 8> tables = make_tables();

}  // namespace

void Crc64::add(const void* from, size_t bytes) {
  const auto* at = static_cast<const unsigned char*>(from);
  uint64_t state = state_;
  for (; bytes >= 8; bytes -= 8, at += 8) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    word ^= state;
    state = 0;
    for (size_t k = 0; k < 8; ++k) state ^= tables[7 - k][word >> (8 * k) & 255];
  }
  for (; bytes > 0; --bytes, ++at) state = state >> 8 ^ tables[0][(state ^ *at) & 255];
  state_ = state;
}

}  // namespace espalier
