#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/data/files/zip_archive.h"
#include "espalier/data/files/zlib_source.h"

namespace espalier::data {

namespace {

// Every entry has the zip64 fields, as those that NumPy writes: one form for all sizes.
constexpr uint16_t zip64_version = 45;
constexpr uint16_t first_day = (0 << 9) | (1 << 5) | 1;  // 1980-01-01: files with the same content are equal

template <class T>
void put(std::string& to, T value) {
  to.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

/// What local headers and the directory have in common, from the flags to the name's length.
std::string common_fields(uint16_t method, uint32_t crc, size_t name_bytes) {
  std::string text;
  put<uint16_t>(text, 1 << 11);  // names are UTF-8
  put<uint16_t>(text, method);
  put<uint16_t>(text, 0);
  put<uint16_t>(text, first_day);
  put<uint32_t>(text, crc);
  put<uint32_t>(text, 0xffffffff);
  put<uint32_t>(text, 0xffffffff);
  put<uint16_t>(text, static_cast<uint16_t>(name_bytes));
  return text;
}

}  // namespace

void ZipWriter::write(const std::string& bytes) {
  file_.write(bytes);
  written_ += bytes.size();
}

void ZipWriter::add(const std::string& name, const std::string& bytes, bool compress) {
  if (name.size() > 65535)
    throw FileError(fmt::format("a zip archive cannot hold a name of {} bytes", name.size()));
  const uint64_t offset = written_;
  const uint32_t crc = crc32_of(bytes.data(), bytes.size());
  const std::string packed = compress ? deflated(bytes) : std::string();
  const std::string& stored = compress ? packed : bytes;
  const std::string fields = common_fields(compress ? 8 : 0, crc, name.size());

  std::string local = "PK\3\4";
  put<uint16_t>(local, zip64_version);
  local += fields;
  put<uint16_t>(local, 20);
  local += name;
  put<uint16_t>(local, 1);
  put<uint16_t>(local, 16);
  put<uint64_t>(local, bytes.size());
  put<uint64_t>(local, stored.size());
  write(local);
  write(stored);

  directory_ += "PK\1\2";
  put<uint16_t>(directory_, zip64_version);
  put<uint16_t>(directory_, zip64_version);
  directory_ += fields;
  put<uint16_t>(directory_, 28);
  put<uint16_t>(directory_, 0);  // no comment
  put<uint16_t>(directory_, 0);  // the first volume
  put<uint16_t>(directory_, 0);
  put<uint32_t>(directory_, 0);
  put<uint32_t>(directory_, 0xffffffff);
  directory_ += name;
  put<uint16_t>(directory_, 1);
  put<uint16_t>(directory_, 24);
  put<uint64_t>(directory_, bytes.size());
  put<uint64_t>(directory_, stored.size());
  put<uint64_t>(directory_, offset);
  ++count_;
}

void ZipWriter::commit() {
  const uint64_t directory = written_;
  write(directory_);
  const uint64_t end = written_;
  std::string text = "PK\6\6";
  put<uint64_t>(text, 44);  // the bytes that follow here
  put<uint16_t>(text, zip64_version);
  put<uint16_t>(text, zip64_version);
  put<uint32_t>(text, 0);
  put<uint32_t>(text, 0);
  put<uint64_t>(text, count_);
  put<uint64_t>(text, count_);
  put<uint64_t>(text, end - directory);
  put<uint64_t>(text, directory);
  text += "PK\6\7";
  put<uint32_t>(text, 0);
  put<uint64_t>(text, end);
  put<uint32_t>(text, 1);
  text += "PK\5\6";
  put<uint32_t>(text, 0);
  put<uint16_t>(text, 0xffff);
  put<uint16_t>(text, 0xffff);
  put<uint32_t>(text, 0xffffffff);
  put<uint32_t>(text, 0xffffffff);
  put<uint16_t>(text, 0);
  write(text);
  file_.commit();
}

}  // namespace espalier::data
