// RecordFile: a file of TensorFlow's records, to which records are appended.
#pragma once
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <string_view>

namespace espalier {

/// The CRC-32 of Castagnoli (RFC 3720, B.4).
uint32_t crc32c(std::string_view bytes);
/// As records store it: rotated, and a constant added, so that the CRC of bytes which contain CRCs is one.
uint32_t masked_crc32c(std::string_view bytes);

/// A record is its length in 8 bytes, the masked CRC of these, the bytes, and the masked CRC of them
/// (tensorflow/core/lib/io/record_writer.h). Every failure is a FileError.
class RecordFile {
 public:
  /// A new file; what is there is an error.
  explicit RecordFile(std::filesystem::path path);
  const std::filesystem::path& path() const { return path_; }
  void append(std::string_view record);
  /// Hands over to the system what was appended, so that readers see it.
  void flush();

 private:
  std::filesystem::path path_;
  std::ofstream out_;
};

}  // namespace espalier
