#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/data/files/image_codecs.h"

#if ESPALIER_WITH_PNG
#include <png.h>

#include <csetjmp>
#include <cstring>

#include "espalier/data/files/zlib_source.h"
#endif

namespace espalier::data {

#if ESPALIER_WITH_PNG

namespace {

/// What libpng calls back with. Errors jump out of its C code: between setjmp and its calls there is nothing
/// with a destructor.
struct PngCall {
  std::string_view input = {};
  std::string* output = nullptr;
  char message[160] = {};
};

void png_failed(png_structp png, png_const_charp message) {
  auto* call = static_cast<PngCall*>(png_get_error_ptr(png));
  std::strncpy(call->message, message, sizeof(call->message) - 1);
  png_longjmp(png, 1);
}
void png_warned(png_structp, png_const_charp) {}

void read_png_bytes(png_structp png, png_bytep to, size_t bytes) {
  auto* call = static_cast<PngCall*>(png_get_io_ptr(png));
  if (bytes > call->input.size()) png_error(png, "it ends too early");
  std::memcpy(to, call->input.data(), bytes);
  call->input.remove_prefix(bytes);
}
void write_png_bytes(png_structp png, png_bytep from, size_t bytes) {
  static_cast<PngCall*>(png_get_io_ptr(png))->output->append(reinterpret_cast<const char*>(from), bytes);
}
void flush_png(png_structp) {}

class PngReader {
 public:
  PngReader(std::string_view bytes) {
    call_.input = bytes;
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &call_, png_failed, png_warned);
    info_ = png_ ? png_create_info_struct(png_) : nullptr;
  }
  ~PngReader() { png_destroy_read_struct(&png_, &info_, nullptr); }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  /// False if it failed; `message` says why. Chunks that are no part of the pixels, such as texts and color
  /// profiles, are skipped: libpng would unpack and keep up to a thousand of 8 MB each.
  bool read_header() {
    if (!png_ || !info_) return false;
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
    png_set_read_fn(png_, &call_, read_png_bytes);
    png_read_info(png_, info_);
    return true;
  }
  /// Lets gray, RGB and alpha of 8 or 16 bits come out.
  bool expand() {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_set_expand(png_);
    png_set_swap(png_);  // 16-bit numbers are big-endian
    png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }
  bool read_rows(png_bytepp rows) {
    if (setjmp(png_jmpbuf(png_))) return false;
    png_read_image(png_, rows);
    png_read_end(png_, nullptr);
    return true;
  }

  int64_t height() const { return png_get_image_height(png_, info_); }
  int64_t width() const { return png_get_image_width(png_, info_); }
  int64_t channels() const { return png_get_channels(png_, info_); }
  int64_t bits() const { return png_get_bit_depth(png_, info_); }
  size_t row_bytes() const { return png_get_rowbytes(png_, info_); }
  const char* message() const { return call_.message[0] ? call_.message : "no memory for libpng"; }

 private:
  PngCall call_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
};

bool write_png(png_structp png, png_infop info, PngCall* call, const Pixels* pixels, int color,
               png_bytepp rows) {
  if (setjmp(png_jmpbuf(png))) return false;
  png_set_write_fn(png, call, write_png_bytes, flush_png);
  png_set_IHDR(png, info, static_cast<png_uint_32>(pixels->width), static_cast<png_uint_32>(pixels->height),
               8, color, PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(png, info);
  png_write_image(png, rows);
  png_write_end(png, nullptr);
  return true;
}

std::vector<png_bytep> png_rows(const Pixels& pixels, size_t row_bytes) {
  std::vector<png_bytep> rows(static_cast<size_t>(pixels.height));
  for (size_t row = 0; row < rows.size(); ++row)
    rows[row] = const_cast<png_bytep>(pixels.bytes.data()) + row * row_bytes;
  return rows;
}

}  // namespace

Pixels decode_png(std::string_view bytes, const std::string& name, int64_t max_pixels) {
  PngReader reader(bytes);
  const auto fail = [&](std::string_view reason) {
    throw FileError(fmt::format("{} is not a PNG image that can be read: {}", name, reason));
  };
  if (!reader.read_header()) fail(reader.message());
  check_pixels(reader.height(), reader.width(), max_pixels, name);
  // Rows are packed by DEFLATE, each after a byte for its filter.
  const auto packed =
      (static_cast<uint64_t>(reader.row_bytes()) + 1) * static_cast<uint64_t>(reader.height());
  if (packed > most_unpacked(bytes.size()))
    fail(fmt::format("its {} x {} pixels cannot come from {} bytes", reader.width(), reader.height(),
                     bytes.size()));
  if (!reader.expand()) fail(reader.message());
  Pixels pixels{reader.height(), reader.width(), reader.channels(), reader.bits() == 16, {}};
  pixels.bytes.resize(reader.row_bytes() * static_cast<size_t>(pixels.height));
  std::vector<png_bytep> rows = png_rows(pixels, reader.row_bytes());
  if (!reader.read_rows(rows.data())) fail(reader.message());
  return pixels;
}

std::string encode_png(const Pixels& pixels, const std::string& name) {
  constexpr int colors[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA, PNG_COLOR_TYPE_RGB,
                            PNG_COLOR_TYPE_RGBA};
  std::string output;
  PngCall call{.output = &output};
  std::vector<png_bytep> rows = png_rows(pixels, static_cast<size_t>(pixels.width * pixels.channels));
  png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, &call, png_failed, png_warned);
  png_infop info = png ? png_create_info_struct(png) : nullptr;
  const bool written = info && write_png(png, info, &call, &pixels, colors[pixels.channels - 1], rows.data());
  png_destroy_write_struct(&png, &info);
  if (!written) throw FileError(fmt::format("{} cannot be written as PNG: {}", name, call.message));
  return output;
}

#else

Pixels decode_png(std::string_view, const std::string& name, int64_t) {
  throw UnsupportedError(name + " is a PNG image, and this Espalier was built without libpng (ESPALIER_PNG)");
}
std::string encode_png(const Pixels&, const std::string& name) {
  throw UnsupportedError(name +
                         " shall be a PNG image, and this Espalier was built without libpng (ESPALIER_PNG)");
}

#endif

}  // namespace espalier::data
