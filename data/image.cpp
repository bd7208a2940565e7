#include "espalier/data/image.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/data/files/image_codecs.h"

namespace espalier::data {

void check_pixels(int64_t height, int64_t width, int64_t max_pixels, const std::string& name) {
  if (height < 1 || width < 1)
    throw FileError(fmt::format("{} is an image of {} x {} pixels", name, width, height));
  if (height > max_pixels / width)
    throw FileError(fmt::format("{} has {} x {} pixels, more than the {} of max_pixels", name, width, height,
                                max_pixels));
}

namespace {

/// One element of an image.
class PixelReader {
 public:
  explicit PixelReader(const Pixels& pixels) : pixels_(pixels) {}
  int32_t operator()(int64_t pixel, int64_t channel) const {
    const size_t at = static_cast<size_t>(pixel * pixels_.channels + channel);
    if (!pixels_.wide) return pixels_.bytes[at];
    uint16_t value = 0;
    std::memcpy(&value, pixels_.bytes.data() + 2 * at, 2);
    return value;
  }
  /// ITU-R BT.601.
  int32_t gray(int64_t pixel) const {
    if (pixels_.channels < 3) return (*this)(pixel, 0);
    return (299 * (*this)(pixel, 0) + 587 * (*this)(pixel, 1) + 114 * (*this)(pixel, 2) + 500) / 1000;
  }
  int32_t alpha(int64_t pixel) const {
    if (pixels_.channels % 2 == 0) return (*this)(pixel, pixels_.channels - 1);
    return pixels_.wide ? 65535 : 255;
  }
  int32_t color(int64_t pixel, int64_t channel) const {
    return (*this)(pixel, pixels_.channels < 3 ? 0 : channel);
  }

 private:
  const Pixels& pixels_;
};

Tensor image_tensor(const Pixels& pixels, int64_t channels, DType dtype) {
  if (channels == 0) channels = pixels.channels;
  const int64_t count = pixels.height * pixels.width;
  Tensor image({channels, pixels.height, pixels.width}, dtype);
  const PixelReader read(pixels);
  const auto write = [&]<class T>(TypeTag<T>) {
    T* out = image.data<T>();
    for (int64_t channel = 0; channel < channels; ++channel)
      for (int64_t pixel = 0; pixel < count; ++pixel, ++out) {
        const bool is_alpha = channels % 2 == 0 && channel == channels - 1;
        *out = static_cast<T>(is_alpha       ? read.alpha(pixel)
                              : channels < 3 ? read.gray(pixel)
                                             : read.color(pixel, channel));
      }
  };
  if (dtype == DType::uint8)
    write(TypeTag<uint8_t>{});
  else
    visit(dtype, write);
  return image;
}

Pixels pixels_of(const Tensor& image) {
  const Tensor plain = image.to(cpu()).to(is_real(image.dtype()) ? float64 : int64).contiguous_copy();
  const size_t rank = plain.rank();
  Pixels pixels{plain.shape()[-2], plain.shape()[-1], rank == 3 ? plain.shape()[0] : 1, false, {}};
  const int64_t count = pixels.height * pixels.width;
  pixels.bytes.resize(static_cast<size_t>(count * pixels.channels));
  visit(plain.dtype(), [&]<class T>(TypeTag<T>) {
    const T* values = plain.data<T>();
    for (int64_t channel = 0; channel < pixels.channels; ++channel)
      for (int64_t pixel = 0; pixel < count; ++pixel, ++values) {
        const double value = std::round(static_cast<double>(*values));
        if (!(value >= 0 && value <= 255))
          throw DataError(
              fmt::format("write_image: an element is {}, which is not between 0 and 255", *values));
        pixels.bytes[static_cast<size_t>(pixel * pixels.channels + channel)] =
            static_cast<unsigned char>(value);
      }
  });
  return pixels;
}

}  // namespace

Tensor read_image(const std::filesystem::path& path, const ImageOptions& options,
                  std::source_location where) {
  return located(where, [&] {
    if (options.channels < 0 || options.channels > 4)
      throw DataError(fmt::format("read_image: {} channels, not 0 to 4", options.channels));
    if (options.dtype == DType::boolean || options.dtype == DType::int8 || options.dtype == DType::int16 ||
        is_half(options.dtype))
      throw TypeError(fmt::format("read_image: the dtype is {}, not uint8, int32, int64, float32 or float64",
                                  name(options.dtype)));
    const std::string bytes = read_file(path), shown = path.string();
    Pixels pixels;
    if (bytes.starts_with("\x89PNG\r\n\x1a\n"))
      pixels = decode_png(bytes, shown, options.max_pixels);
    else if (bytes.starts_with("\xff\xd8\xff"))
      pixels = decode_jpeg(bytes, shown, options.max_pixels);
    else
      throw FileError(fmt::format("{} is neither a PNG nor a JPEG image", shown));
    if (pixels.wide && options.dtype == DType::uint8)
      throw DataError(fmt::format(
          "read_image: {} has elements of 16 bits, which uint8 does not hold; read it as int32", shown));
    return image_tensor(pixels, options.channels, options.dtype);
  });
}

void write_image(const std::filesystem::path& path, const Tensor& image, const ImageWriteOptions& options,
                 std::source_location where) {
  located(where, [&] {
    if (!image.defined()) throw TypeError("write_image: the tensor is undefined");
    if (image.dtype() == DType::boolean)
      throw TypeError("write_image: the elements are bool; cast them to int32");
    const std::string extension = path.extension().string();
    const bool png = extension == ".png";
    if (!png && extension != ".jpg" && extension != ".jpeg")
      throw FileError(
          fmt::format("{} cannot be written: its name ends in none of .png, .jpg and .jpeg", path.string()));
    const int64_t channels = image.rank() == 3 ? image.shape()[0] : 1;
    const bool fits = (image.rank() == 2 || image.rank() == 3) && image.elements() > 0 &&
                      (png ? channels <= 4 : channels == 1 || channels == 3) && image.shape()[-1] <= 65500 &&
                      image.shape()[-2] <= 65500;
    if (!fits)
      throw ShapeError(fmt::format(
          "write_image: the shape {} is not [channels, height, width] of {} with sizes from 1 to 65500",
          image.shape().str(), png ? "1 to 4 channels" : "1 or 3 channels"));
    if (options.quality < 1 || options.quality > 100)
      throw DataError(
          fmt::format("write_image: the quality is {}, which is not from 1 to 100", options.quality));
    const Pixels pixels = pixels_of(image);
    const std::string bytes = png ? encode_png(pixels, path.string())
                                  : encode_jpeg(pixels, static_cast<int>(options.quality), path.string());
    AtomicFile file(path);
    file.write(bytes);
    file.commit();
  });
}

}  // namespace espalier::data
