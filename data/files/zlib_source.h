// Bytes that are packed by DEFLATE: entries of zip archives, and gzip files.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "espalier/data/files/byte_source.h"

namespace espalier::data {

/// Throws UnsupportedError, naming `what` needs zlib, if Espalier was built without it.
void require_zlib(const std::string& what);

/// Unpacks `packed` bytes of the file from its position on.
class ZlibSource : public ByteSource {
 public:
  enum class Wrapping { none, gzip };

  /// `size` is that of the unpacked bytes, if it is known. Then the stream must have exactly as many.
  ZlibSource(InputFile& file, std::string name, uint64_t packed, Wrapping wrapping,
             std::optional<uint64_t> size = {});
  ~ZlibSource() override;

  uint64_t remaining() const override;
  void read(void* to, size_t bytes) override;
  bool at_end() override;

 private:
  struct Stream;
  /// Unpacks at most `bytes` bytes and returns their number: fewer at the end only.
  size_t unpack(void* to, size_t bytes);

  InputFile& file_;
  std::unique_ptr<Stream> stream_;
  uint64_t packed_ = 0;  // bytes of the file that are still to be read
  std::optional<uint64_t> size_;
  bool ended_ = false;
};

/// The most bytes that so many packed ones can be unpacked to.
uint64_t most_unpacked(uint64_t packed);

/// Packs these bytes by DEFLATE, without a header.
std::string deflated(const std::string& bytes);

/// CRC-32 as zip and gzip have it, of `bytes` bytes that follow those with the checksum `before`.
uint32_t crc32_of(const void* from, size_t bytes, uint32_t before = 0);

}  // namespace espalier::data
