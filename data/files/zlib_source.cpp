#include "espalier/data/files/zlib_source.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>

#include "espalier/core/error.h"

#if ESPALIER_WITH_ZLIB
#include <zlib.h>
#endif

namespace espalier::data {

uint64_t most_unpacked(uint64_t packed) {
  // DEFLATE describes 258 bytes by two bits at best; a little more may wait in the unpacker.
  constexpr uint64_t ratio = 1032, waiting = 65536;
  if (packed > (std::numeric_limits<uint64_t>::max() - waiting) / ratio)
    return std::numeric_limits<uint64_t>::max();
  return packed * ratio + waiting;
}

#if ESPALIER_WITH_ZLIB

void require_zlib(const std::string&) {}

struct ZlibSource::Stream {
  z_stream z{};
  std::array<unsigned char, 65536> buffer{};
};

ZlibSource::ZlibSource(InputFile& file, std::string name, uint64_t packed, Wrapping wrapping,
                       std::optional<uint64_t> size)
    : ByteSource(std::move(name)),
      file_(file),
      stream_(std::make_unique<Stream>()),
      packed_(packed),
      size_(size) {
  // Negative window sizes are raw streams; 16 and more have gzip's header and checksum.
  if (inflateInit2(&stream_->z, wrapping == Wrapping::gzip ? MAX_WBITS + 16 : -MAX_WBITS) != Z_OK)
    throw OutOfMemory("no memory for unpacking by zlib");
}

ZlibSource::~ZlibSource() { inflateEnd(&stream_->z); }

uint64_t ZlibSource::remaining() const {
  if (size_) return *size_;
  return ended_ ? 0 : most_unpacked(packed_ + stream_->z.avail_in);
}

size_t ZlibSource::unpack(void* to, size_t bytes) {
  z_stream& z = stream_->z;
  auto* at = static_cast<unsigned char*>(to);
  size_t left = bytes;
  while (left > 0 && !ended_) {
    if (z.avail_in == 0 && packed_ > 0) {
      const size_t next = static_cast<size_t>(std::min<uint64_t>(packed_, stream_->buffer.size()));
      file_.read(stream_->buffer.data(), next);
      packed_ -= next;
      z.next_in = stream_->buffer.data();
      z.avail_in = static_cast<uInt>(next);
    }
    const auto room = static_cast<uInt>(std::min<size_t>(left, 1u << 30));
    z.next_out = at;
    z.avail_out = room;
    const bool had_input = z.avail_in > 0;
    const int status = inflate(&z, Z_NO_FLUSH);
    const size_t got = room - z.avail_out;
    at += got;
    left -= got;
    if (status == Z_STREAM_END)
      ended_ = true;
    else if (status == Z_MEM_ERROR)
      throw OutOfMemory("no memory for unpacking by zlib");
    else if (status != Z_OK && status != Z_BUF_ERROR)
      fail(fmt::format("has damaged packed data before byte {} of the file: {}",
                       file_.size() - file_.remaining(), z.msg ? z.msg : "no zlib stream"));
    else if (got == 0 && !had_input && packed_ == 0)
      fail("is cut off in its packed data");
  }
  return bytes - left;
}

void ZlibSource::read(void* to, size_t bytes) {
  if (size_ && bytes > *size_) fail(fmt::format("ends {} bytes too early", bytes - *size_));
  const size_t got = unpack(to, bytes);
  if (got < bytes) fail(fmt::format("ends {} bytes too early when it is unpacked", bytes - got));
  if (size_) *size_ -= bytes;
}

bool ZlibSource::at_end() {
  if (size_ && *size_ > 0) return false;
  char more = 0;
  if (unpack(&more, 1) != 0) return false;
  return stream_->z.avail_in == 0 && packed_ == 0;
}

std::string deflated(const std::string& bytes) {
  z_stream z{};
  if (deflateInit2(&z, Z_DEFAULT_COMPRESSION, Z_DEFLATED, -MAX_WBITS, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw OutOfMemory("no memory for packing by zlib");
  std::string packed;
  std::array<unsigned char, 65536> buffer{};
  size_t taken = 0;
  for (int status = Z_OK; status != Z_STREAM_END;) {
    const size_t piece = std::min<size_t>(bytes.size() - taken, 1u << 30);
    if (z.avail_in == 0 && piece > 0) {
      z.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data() + taken));
      z.avail_in = static_cast<uInt>(piece);
      taken += piece;
    }
    z.next_out = buffer.data();
    z.avail_out = static_cast<uInt>(buffer.size());
    status = deflate(&z, taken == bytes.size() ? Z_FINISH : Z_NO_FLUSH);
    packed.append(reinterpret_cast<const char*>(buffer.data()), buffer.size() - z.avail_out);
  }
  deflateEnd(&z);
  return packed;
}

uint32_t crc32_of(const void* from, size_t bytes, uint32_t before) {
  return static_cast<uint32_t>(crc32_z(before, static_cast<const unsigned char*>(from), bytes));
}

#else

namespace {
[[noreturn]] void throw_no_zlib(const std::string& what) {
  throw UnsupportedError(what + " needs zlib, which this Espalier was built without (ESPALIER_ZLIB)");
}
}  // namespace

void require_zlib(const std::string& what) { throw_no_zlib(what); }
struct ZlibSource::Stream {};
ZlibSource::ZlibSource(InputFile& file, std::string name, uint64_t, Wrapping, std::optional<uint64_t>)
    : ByteSource(std::move(name)), file_(file) {
  throw_no_zlib(file.path().string());
}
ZlibSource::~ZlibSource() = default;
uint64_t ZlibSource::remaining() const { return 0; }
size_t ZlibSource::unpack(void*, size_t) { return 0; }
void ZlibSource::read(void*, size_t) {}
bool ZlibSource::at_end() { return true; }
std::string deflated(const std::string&) { throw_no_zlib("packing"); }
uint32_t crc32_of(const void*, size_t, uint32_t) { throw_no_zlib("a checksum"); }

#endif

}  // namespace espalier::data
