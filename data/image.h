// Images in files, PNG and JPEG.
#pragma once
#include <cstdint>
#include <filesystem>
#include <source_location>

#include "espalier/core/tensor.h"

namespace espalier::data {

struct ImageOptions {
  /// 1: gray, 2: gray and alpha, 3: red, green and blue, 4: these and alpha; 0: as the file has it. Gray is
  /// 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601), rounded; alpha that the file does not have is opaque.
  int64_t channels = 0;
  /// Reals have the same numbers, which are not scaled. uint8 takes the least memory; cast() it in the tree.
  DType dtype = DType::int32;
  /// Files with more pixels are refused before memory is made for them.
  int64_t max_pixels = int64_t{1} << 28;
};

/// An image as [channels, height, width], from 0 to 255, or to 65535 for PNG files of 16 bits. Palettes are
/// looked up; the orientation that a camera noted is not applied. Throws FileError naming the file and what
/// is wrong with it: neither PNG nor JPEG, damaged or cut off, CMYK, or larger than its bytes can be;
/// UnsupportedError where Espalier was built without the library for it; TypeError for booleans,
/// halves, int8 and int16; DataError for other channels, and for uint8 if the file has 16 bits.
Tensor read_image(const std::filesystem::path& path, const ImageOptions& options = {},
                  std::source_location where = std::source_location::current());

struct ImageWriteOptions {
  int64_t quality = 90;  ///< of JPEG, from 1 to 100
};

/// Writes [channels, height, width] or [height, width] with elements from 0 to 255 as the file's name says:
/// .png (1 to 4 channels), .jpg or .jpeg (1 or 3). Reals are rounded. An existing file is replaced only when
/// the new one is complete. Throws FileError, ShapeError, TypeError for booleans, DataError for elements
/// outside 0 to 255, and UnsupportedError as above.
void write_image(const std::filesystem::path& path, const Tensor& image,
                 const ImageWriteOptions& options = {},
                 std::source_location where = std::source_location::current());

}  // namespace espalier::data
