// Zip archives: entries that are stored or packed by DEFLATE, of any size (zip64). PKWARE's APPNOTE.TXT.
#pragma once
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "espalier/core/files/file.h"
#include "espalier/data/files/byte_source.h"

namespace espalier::data {

struct ZipEntry {
  std::string name;
  uint16_t method = 0;  ///< 0: stored, 8: DEFLATE
  uint32_t crc = 0;
  uint64_t packed = 0;  ///< bytes in the archive
  uint64_t size = 0;    ///< bytes when unpacked
  uint64_t offset = 0;  ///< of its local header
};

/// The entries of an archive. All functions throw FileError naming the file and what is wrong with it; sizes
/// are checked against the file's before memory is made for anything.
class ZipReader {
 public:
  explicit ZipReader(const std::filesystem::path& path);
  /// In the order of the archive's directory.
  const std::vector<ZipEntry>& entries() const { return entries_; }
  /// The bytes of an entry; one can be read at a time. `at_end` of the source checks the checksum.
  std::unique_ptr<ByteSource> open(const ZipEntry& entry);

 private:
  void read_directory(uint64_t offset, uint64_t bytes, uint64_t count);

  InputFile file_;
  std::vector<ZipEntry> entries_;
};

/// Writes an archive beside its place; `commit` puts it there.
class ZipWriter {
 public:
  explicit ZipWriter(const std::filesystem::path& path) : file_(path) {}
  /// Throws FileError.
  void add(const std::string& name, const std::string& bytes, bool compress);
  void commit();

 private:
  void write(const std::string& bytes);

  AtomicFile file_;
  uint64_t written_ = 0;
  uint64_t count_ = 0;
  std::string directory_;
};

}  // namespace espalier::data
