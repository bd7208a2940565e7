// Messages of Protocol Buffers, written field by field (protobuf.dev/programming-guides/encoding).
#pragma once
#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace espalier {

/// The bytes of a message so far. Fields may come in any order; a repeated one is added several times.
class ProtobufMessage {
 public:
  const std::string& bytes() const { return bytes_; }

  /// int32, int64, uint64, bool and enumerations.
  ProtobufMessage& add_integer(uint32_t field, int64_t value) {
    key(field, 0);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  ProtobufMessage& add_double(uint32_t field, double value) {
    key(field, 1);
    fixed(std::bit_cast<uint64_t>(value), 8);
    return *this;
  }
  ProtobufMessage& add_float(uint32_t field, float value) {
    key(field, 5);
    fixed(std::bit_cast<uint32_t>(value), 4);
    return *this;
  }
  /// string and bytes.
  ProtobufMessage& add_text(uint32_t field, std::string_view value) {
    key(field, 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  ProtobufMessage& add_message(uint32_t field, const ProtobufMessage& value) {
    return add_text(field, value.bytes());
  }
  /// A repeated double, packed.
  ProtobufMessage& add_doubles(uint32_t field, std::span<const double> values) {
    key(field, 2);
    varint(values.size() * 8);
    for (const double value : values) fixed(std::bit_cast<uint64_t>(value), 8);
    return *this;
  }

 private:
  void key(uint32_t field, uint32_t type) { varint(field << 3 | type); }
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  void fixed(uint64_t value, int size) {
    for (int i = 0; i < size; ++i) bytes_ += static_cast<char>(value >> (8 * i));
  }

  std::string bytes_;
};

}  // namespace espalier
