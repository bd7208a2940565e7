#include "espalier/executor/kit/tensorboard/record_file.h"

#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "espalier/core/error.h"

namespace espalier {

namespace {

std::string little_endian(uint64_t value, int bytes) {
  std::string text;
  for (int i = 0; i < bytes; ++i) text += static_cast<char>(value >> (8 * i));
  return text;
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  static const auto table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < 256; ++i) {
      made[i] = i;
      for (int bit = 0; bit < 8; ++bit) made[i] = made[i] >> 1 ^ (made[i] & 1 ? 0x82F63B78u : 0u);
    }
    return made;
  }();
  uint32_t crc = ~0u;
  for (const char c : bytes) crc = crc >> 8 ^ table[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t crc = crc32c(bytes);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

RecordFile::RecordFile(std::filesystem::path path) : path_(std::move(path)) {
  if (std::filesystem::exists(path_)) throw FileError(fmt::format("{} exists already", path_.string()));
  out_.open(path_, std::ios::binary);
  if (!out_) throw FileError(fmt::format("{} cannot be made: {}", path_.string(), std::strerror(errno)));
}

void RecordFile::append(std::string_view record) {
  const std::string length = little_endian(record.size(), 8);
  out_ << length << little_endian(masked_crc32c(length), 4) << record
       << little_endian(masked_crc32c(record), 4);
  if (!out_) throw FileError(fmt::format("{} cannot be written: {}", path_.string(), std::strerror(errno)));
}

void RecordFile::flush() {
  out_.flush();
  if (!out_) throw FileError(fmt::format("{} cannot be written: {}", path_.string(), std::strerror(errno)));
}

}  // namespace espalier
