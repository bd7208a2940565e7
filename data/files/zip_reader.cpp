#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/data/files/zip_archive.h"
#include "espalier/data/files/zlib_source.h"

namespace espalier::data {

namespace {

constexpr uint64_t zip_end_bytes = 22, zip64_end_bytes = 56, zip64_locator_bytes = 20;
constexpr uint64_t zip_directory_bytes = 46, zip_local_bytes = 30;
constexpr uint32_t in_zip64 = 0xffffffff;  // a size or offset that stands in the zip64 field

/// The little-endian number at a position of `text`, which must reach so far.
template <class T>
T zip_number(std::string_view text, size_t at) {
  T value;
  std::memcpy(&value, text.data() + at, sizeof(T));
  return value;
}

/// Replaces those of `values` that say so by the numbers of the zip64 field, which has them in this order.
bool read_zip64_field(std::string_view extra, std::initializer_list<uint64_t*> values) {
  std::string_view field;
  while (extra.size() >= 4) {
    const size_t size = zip_number<uint16_t>(extra, 2);
    if (size > extra.size() - 4) return false;
    if (zip_number<uint16_t>(extra, 0) == 1) field = extra.substr(4, size);
    extra.remove_prefix(4 + size);
  }
  for (uint64_t* value : values) {
    if (*value != in_zip64) continue;
    if (field.size() < 8) return false;
    *value = zip_number<uint64_t>(field, 0);
    field.remove_prefix(8);
  }
  return true;
}

/// Part of a file, as it lies there.
class StoredSource : public ByteSource {
 public:
  StoredSource(InputFile& file, std::string name, uint64_t bytes)
      : ByteSource(std::move(name)), file_(file), left_(bytes) {}
  uint64_t remaining() const override { return left_; }
  void read(void* to, size_t bytes) override {
    if (bytes > left_) fail(fmt::format("ends {} bytes too early", bytes - left_));
    file_.read(to, bytes);
    left_ -= bytes;
  }

 private:
  InputFile& file_;
  uint64_t left_;
};

/// Computes the checksum of what is read.
class CheckedSource : public ByteSource {
 public:
  CheckedSource(std::string name, std::unique_ptr<ByteSource> from, uint32_t crc)
      : ByteSource(std::move(name)), from_(std::move(from)), expected_(crc) {}
  uint64_t remaining() const override { return from_->remaining(); }
  void read(void* to, size_t bytes) override {
    from_->read(to, bytes);
    crc_ = crc32_of(to, bytes, crc_);
  }
  bool at_end() override {
    if (!from_->at_end()) return false;
    if (crc_ != expected_)
      fail(fmt::format("is damaged: its checksum is {:08x}, not {:08x}", crc_, expected_));
    return true;
  }

 private:
  std::unique_ptr<ByteSource> from_;
  uint32_t expected_;
  uint32_t crc_ = 0;
};

std::string zip_bytes(InputFile& file, uint64_t offset, uint64_t bytes) {
  std::string text(static_cast<size_t>(bytes), '\0');
  file.seek(offset);
  file.read(text.data(), text.size());
  return text;
}

}  // namespace

ZipReader::ZipReader(const std::filesystem::path& path) : file_(path) {
  require_zlib(path.string());
  if (file_.size() < zip_end_bytes) file_.fail("is too short for a zip archive");
  // The end of the directory is last, but for a comment of at most 65535 bytes.
  const uint64_t tail_bytes = std::min<uint64_t>(file_.size(), zip_end_bytes + 65535);
  const uint64_t tail_begin = file_.size() - tail_bytes;
  const std::string tail = zip_bytes(file_, tail_begin, tail_bytes);
  size_t at = tail.size() - zip_end_bytes;
  const auto is_end = [&](size_t where) {
    return tail.compare(where, 4, "PK\5\6") == 0 &&
           zip_number<uint16_t>(tail, where + 20) == tail.size() - where - zip_end_bytes;
  };
  while (!is_end(at)) {
    if (at == 0) file_.fail("is not a zip archive, or cut off: it has no end of a directory");
    --at;
  }
  if (zip_number<uint16_t>(tail, at + 4) != 0) file_.fail("is one of several volumes of a zip archive");
  uint64_t count = zip_number<uint16_t>(tail, at + 10);
  uint64_t bytes = zip_number<uint32_t>(tail, at + 12);
  uint64_t offset = zip_number<uint32_t>(tail, at + 16);
  uint64_t end = tail_begin + at;
  if (end >= zip64_locator_bytes) {
    const std::string locator = zip_bytes(file_, end - zip64_locator_bytes, zip64_locator_bytes);
    if (locator.starts_with("PK\6\7")) {
      const uint64_t end64 = zip_number<uint64_t>(locator, 8);
      if (end64 > end || end - end64 < zip64_end_bytes)
        file_.fail(fmt::format("has the end of its directory at byte {}, outside the archive", end64));
      const std::string found = zip_bytes(file_, end64, zip64_end_bytes);
      if (!found.starts_with("PK\6\6")) file_.fail("has a damaged end of its zip64 directory");
      count = zip_number<uint64_t>(found, 32);
      bytes = zip_number<uint64_t>(found, 40);
      offset = zip_number<uint64_t>(found, 48);
      end = end64;
    }
  }
  if (offset > end || bytes > end - offset)
    file_.fail(fmt::format("has a directory of {} bytes at byte {}, outside the archive", bytes, offset));
  if (count > bytes / zip_directory_bytes)
    file_.fail(fmt::format("claims {} entries in a directory of {} bytes", count, bytes));
  read_directory(offset, bytes, count);
}

void ZipReader::read_directory(uint64_t offset, uint64_t bytes, uint64_t count) {
  const std::string text = zip_bytes(file_, offset, bytes);
  std::string_view rest = text;
  uint64_t left = offset;  // entries that share bytes could be unpacked to any size
  for (uint64_t i = 0; i < count; ++i) {
    const auto fail = [&](const std::string& reason) {
      file_.fail(fmt::format("has a damaged directory: entry {} at byte {} {}", i,
                             offset + static_cast<uint64_t>(rest.data() - text.data()), reason));
    };
    if (rest.size() < zip_directory_bytes || !rest.starts_with("PK\1\2")) fail("is not there");
    const size_t name_bytes = zip_number<uint16_t>(rest, 28), extra_bytes = zip_number<uint16_t>(rest, 30);
    const size_t all = zip_directory_bytes + name_bytes + extra_bytes + zip_number<uint16_t>(rest, 32);
    if (all > rest.size()) fail("leaves it");
    ZipEntry entry;
    entry.name = rest.substr(zip_directory_bytes, name_bytes);
    entry.method = zip_number<uint16_t>(rest, 10);
    entry.crc = zip_number<uint32_t>(rest, 16);
    entry.packed = zip_number<uint32_t>(rest, 20);
    entry.size = zip_number<uint32_t>(rest, 24);
    entry.offset = zip_number<uint32_t>(rest, 42);
    if (!read_zip64_field(rest.substr(zip_directory_bytes + name_bytes, extra_bytes),
                          {&entry.size, &entry.packed, &entry.offset}))
      fail("has no zip64 sizes");
    if (zip_number<uint16_t>(rest, 8) & 1) fail(fmt::format("('{}') is encrypted", entry.name));
    if (entry.method != 0 && entry.method != 8)
      fail(fmt::format("('{}') is packed by method {}; stored and deflated ones can be read", entry.name,
                       entry.method));
    if (entry.offset > offset || entry.packed > offset - entry.offset)
      fail(fmt::format("('{}') claims {} bytes at byte {}, outside the archive", entry.name, entry.packed,
                       entry.offset));
    if (entry.method == 0 ? entry.size != entry.packed : entry.size > most_unpacked(entry.packed))
      fail(fmt::format("('{}') claims {} bytes, which {} packed ones cannot be", entry.name, entry.size,
                       entry.packed));
    if (entry.packed > left) fail(fmt::format("('{}') shares its bytes with others", entry.name));
    left -= entry.packed;
    rest.remove_prefix(all);
    entries_.push_back(std::move(entry));
  }
}

std::unique_ptr<ByteSource> ZipReader::open(const ZipEntry& entry) {
  std::string name = fmt::format("{}, entry '{}',", file_.path().string(), entry.name);
  const auto fail = [&] { throw FileError(fmt::format("{} has no local header where it should be", name)); };
  if (file_.size() - entry.offset < zip_local_bytes) fail();
  const std::string local = zip_bytes(file_, entry.offset, zip_local_bytes);
  if (!local.starts_with("PK\3\4")) fail();
  const uint64_t begin =
      entry.offset + zip_local_bytes + zip_number<uint16_t>(local, 26) + zip_number<uint16_t>(local, 28);
  if (begin > file_.size() || entry.packed > file_.size() - begin)
    throw FileError(
        fmt::format("{} claims {} bytes at byte {}, after the file's end", name, entry.packed, begin));
  file_.seek(begin);
  std::unique_ptr<ByteSource> source;
  if (entry.method == 0)
    source = std::make_unique<StoredSource>(file_, name, entry.packed);
  else
    source = std::make_unique<ZlibSource>(file_, name, entry.packed, ZlibSource::Wrapping::none, entry.size);
  return std::make_unique<CheckedSource>(std::move(name), std::move(source), entry.crc);
}

}  // namespace espalier::data
