// PNG and JPEG by libpng and libjpeg.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace espalier::data {

/// An image whose channels lie next to each other.
struct Pixels {
  int64_t height = 0, width = 0, channels = 0;
  bool wide = false;  ///< elements of 16 bits, of this machine's byte order
  std::vector<unsigned char> bytes;
};

/// Both throw FileError: `name`, and what is wrong with the bytes; UnsupportedError without the library.
Pixels decode_png(std::string_view bytes, const std::string& name, int64_t max_pixels);
Pixels decode_jpeg(std::string_view bytes, const std::string& name, int64_t max_pixels);

/// Images of 8 bits.
std::string encode_png(const Pixels& pixels, const std::string& name);
std::string encode_jpeg(const Pixels& pixels, int quality, const std::string& name);

/// Throws FileError if an image of that size has more pixels than that, or none.
void check_pixels(int64_t height, int64_t width, int64_t max_pixels, const std::string& name);

}  // namespace espalier::data
