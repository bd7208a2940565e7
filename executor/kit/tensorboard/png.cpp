#include "espalier/executor/kit/tensorboard/png.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "espalier/core/error.h"

namespace espalier {

namespace {

std::string big_endian(uint32_t value) {
  std::string text;
  for (int shift = 24; shift >= 0; shift -= 8) text += static_cast<char>(value >> shift);
  return text;
}

/// The CRC-32 of PNG and zip.
uint32_t png_crc(std::string_view bytes) {
  uint32_t crc = ~0u;
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xEDB88320u : 0u);
  }
  return ~crc;
}

std::string png_chunk(const std::string& type, const std::string& data) {
  const std::string body = type + data;
  return big_endian(static_cast<uint32_t>(data.size())) + body + big_endian(png_crc(body));
}

/// A zlib stream of stored blocks (RFC 1950 and 1951).
std::string zlib_stored(std::string_view bytes) {
  std::string out = "\x78\x01";
  uint32_t a = 1, b = 0;  // Adler-32
  for (const char c : bytes) {
    a = (a + static_cast<unsigned char>(c)) % 65521;
    b = (b + a) % 65521;
  }
  do {
    const size_t size = std::min<size_t>(bytes.size(), 65535);
    out += static_cast<char>(size == bytes.size());
    for (const size_t number : {size, ~size})
      for (const int shift : {0, 8}) out += static_cast<char>(number >> shift);
    out += bytes.substr(0, size);
    bytes.remove_prefix(size);
  } while (!bytes.empty());
  return out + big_endian(b << 16 | a);
}

}  // namespace

PngImage png_of(const Tensor& image) {
  const Shape& shape = image.shape();
  const int64_t channels = shape.rank() == 3 ? shape[2] : 1;
  if (shape.rank() < 2 || shape.rank() > 3 || shape.elements() == 0 ||
      (channels != 1 && channels != 3 && channels != 4))
    throw ShapeError(fmt::format(
        "an image is [height, width] or [height, width, channels] with 1, 3 or 4 channels, not {}",
        shape.str()));
  const double scale = is_real(image.dtype()) || image.dtype() == boolean ? 255 : 1;
  const Tensor pixels = image.to(cpu()).to(float64).contiguous_copy();
  const double* next = pixels.data<double>();
  std::string rows;
  for (int64_t y = 0; y < shape[0]; ++y) {
    rows += '\0';  // no filter
    for (int64_t i = 0; i < shape[1] * channels; ++i, ++next)
      rows += static_cast<char>(static_cast<unsigned char>(
          std::isnan(*next) ? 0 : std::lround(std::clamp(*next * scale, 0.0, 255.0))));
  }
  const char colour = channels == 1 ? 0 : channels == 3 ? 2 : 6;
  std::string header =
      big_endian(static_cast<uint32_t>(shape[1])) + big_endian(static_cast<uint32_t>(shape[0]));
  for (const char c : {char{8}, colour, char{0}, char{0}, char{0}}) header += c;
  return {shape[0], shape[1], channels,
          "\x89PNG\r\n\x1a\n" + png_chunk("IHDR", header) + png_chunk("IDAT", zlib_stored(rows)) +
              png_chunk("IEND", "")};
}

}  // namespace espalier
