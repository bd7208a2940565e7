#include "espalier/core/files/element_types.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "espalier/core/half.h"

namespace espalier {

namespace {

static_assert(std::endian::native == std::endian::little);

template <class From, class To>
int64_t convert_elements(const char* from, char* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + static_cast<size_t>(i) * sizeof(From), sizeof(From));
    if constexpr (std::is_same_v<From, uint64_t>)
      if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return i;
    const To result = static_cast<To>(value);  // bytes other than 0 and 1 must not become a bool as they are
    std::memcpy(to + static_cast<size_t>(i) * sizeof(To), &result, sizeof(To));
  }
  return count;
}

template <size_t bytes>
int64_t copy_element_bytes(const char* from, char* to, int64_t count) {
  if (count > 0) std::memcpy(to, from, static_cast<size_t>(count) * bytes);
  return count;
}

/// 1 sign bit, 4 of exponent with bias 7, 3 of fraction; no infinities, and NaN where all bits after the sign
/// are set.
float real_of_e4m3(uint8_t bits) {
  const int exponent = bits >> 3 & 15, fraction = bits & 7;
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float size = exponent ? std::ldexp(static_cast<float>(8 + fraction), exponent - 10)
                              : std::ldexp(static_cast<float>(fraction), -9);
  return bits & 0x80 ? -size : size;
}

int64_t convert_e4m3(const char* from, char* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const Float16 value(real_of_e4m3(static_cast<uint8_t>(from[i])));
    std::memcpy(to + 2 * i, &value, 2);
  }
  return count;
}

/// The first 8 of the 16 bits of a float16.
int64_t convert_e5m2(const char* from, char* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    to[2 * i] = 0;
    to[2 * i + 1] = from[i];
  }
  return count;
}

constexpr ElementType element_types[] = {
    {"f2", 2, DType::float16, true, copy_element_bytes<2>},
    {"bf2", 2, DType::bfloat16, true, copy_element_bytes<2>},
    {"f4", 4, DType::float32, true, copy_element_bytes<4>},
    {"f8", 8, DType::float64, true, copy_element_bytes<8>},
    {"i4", 4, DType::int32, true, copy_element_bytes<4>},
    {"i8", 8, DType::int64, true, copy_element_bytes<8>},
    {"b1", 1, DType::boolean, false, convert_elements<uint8_t, bool>},
    {"i1", 1, DType::int8, true, copy_element_bytes<1>},
    {"u1", 1, DType::uint8, true, copy_element_bytes<1>},
    {"i2", 2, DType::int16, true, copy_element_bytes<2>},
    {"u2", 2, DType::int32, false, convert_elements<uint16_t, int32_t>},
    {"u4", 4, DType::int64, false, convert_elements<uint32_t, int64_t>},
    {"u8", 8, DType::int64, false, convert_elements<uint64_t, int64_t>},
    {"e4m3", 1, DType::float16, false, convert_e4m3},
    {"e5m2", 1, DType::float16, false, convert_e5m2},
};

}  // namespace

const ElementType* element_type(std::string_view name) {
  for (const ElementType& type : element_types)
    if (type.name == name) return &type;
  return nullptr;
}

bool bytes_of_elements(const Shape& shape, size_t element, uint64_t& bytes) {
  int64_t product = static_cast<int64_t>(element);
  bool empty = false;
  for (const int64_t size : shape) {
    empty |= size == 0;
    if (size != 0 && __builtin_mul_overflow(product, size, &product)) return false;
  }
  bytes = empty ? 0 : static_cast<uint64_t>(product);
  return true;
}

}  // namespace espalier
