#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/data/files/image_codecs.h"

#if ESPALIER_WITH_JPEG
#include <algorithm>
#include <csetjmp>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <jpeglib.h>
//
#include <jerror.h>
#endif

namespace espalier::data {

#if ESPALIER_WITH_JPEG

namespace {

/// Errors jump out of libjpeg's C code: between setjmp and its calls there is nothing with a destructor.
struct JpegErrors {
  jpeg_error_mgr base;
  jmp_buf back;
  char message[JMSG_LENGTH_MAX];
};

void jpeg_failed(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  (*info->err->format_message)(info, errors->message);
  longjmp(errors->back, 1);
}

/// Damage of the pixels is only a warning for libjpeg, which makes up what is missing.
void jpeg_warned(j_common_ptr info, int level) {
  if (level >= 0) return;
  const int code = info->err->msg_code;
  const bool harmless = code == JWRN_EXTRANEOUS_DATA || code == JWRN_ADOBE_XFORM || code == JWRN_JFIF_MAJOR;
  if (!harmless) jpeg_failed(info);
}

/// A small file may have very many scans of a large image. Each visits all blocks, so large images may have
/// fewer; encoders write about ten.
int64_t most_jpeg_scans(const jpeg_decompress_struct& info) {
  constexpr int64_t most_visits = int64_t{1} << 33;
  return std::clamp<int64_t>(most_visits / (int64_t{info.image_width} * info.image_height), 32, 500);
}
void check_jpeg_scans(j_common_ptr info) {
  if (!info->is_decompressor) return;
  const auto& reading = *reinterpret_cast<j_decompress_ptr>(info);
  const int64_t most = most_jpeg_scans(reading);
  if (reading.input_scan_number <= most) return;
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  std::snprintf(errors->message, sizeof(errors->message), "it has more than %d scans",
                static_cast<int>(most));
  longjmp(errors->back, 1);
}

void start_errors(JpegErrors& errors) {
  jpeg_std_error(&errors.base);
  errors.base.error_exit = jpeg_failed;
  errors.base.emit_message = jpeg_warned;
  errors.base.output_message = [](j_common_ptr) {};
  errors.message[0] = '\0';
}

class JpegReader {
 public:
  JpegReader() {
    start_errors(errors_);
    info_.err = &errors_.base;
    monitor_.progress_monitor = check_jpeg_scans;
  }
  ~JpegReader() {
    if (made_) jpeg_destroy_decompress(&info_);
  }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  bool read_header(std::string_view bytes) {
    if (setjmp(errors_.back)) return false;
    jpeg_create_decompress(&info_);
    made_ = true;
    info_.progress = &monitor_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }
  bool start() {
    if (setjmp(errors_.back)) return false;
    info_.out_color_space = info_.jpeg_color_space == JCS_GRAYSCALE ? JCS_GRAYSCALE : JCS_RGB;
    jpeg_start_decompress(&info_);
    return true;
  }
  bool read_rows(unsigned char* to) {
    if (setjmp(errors_.back)) return false;
    const size_t row_bytes = size_t{info_.output_width} * static_cast<size_t>(info_.output_components);
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = to + info_.output_scanline * row_bytes;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }
  const jpeg_decompress_struct& info() const { return info_; }
  const char* message() const { return errors_.message; }

 private:
  jpeg_decompress_struct info_{};
  JpegErrors errors_{};
  jpeg_progress_mgr monitor_{};
  bool made_ = false;
};

bool write_jpeg(jpeg_compress_struct* info, JpegErrors* errors, const Pixels* pixels, int quality,
                unsigned char** buffer, unsigned long* bytes) {
  if (setjmp(errors->back)) return false;
  jpeg_create_compress(info);
  jpeg_mem_dest(info, buffer, bytes);
  info->image_width = static_cast<JDIMENSION>(pixels->width);
  info->image_height = static_cast<JDIMENSION>(pixels->height);
  info->input_components = static_cast<int>(pixels->channels);
  info->in_color_space = pixels->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_set_defaults(info);
  jpeg_set_quality(info, quality, TRUE);
  jpeg_start_compress(info, TRUE);
  const size_t row_bytes = static_cast<size_t>(pixels->width * pixels->channels);
  while (info->next_scanline < info->image_height) {
    JSAMPROW row = const_cast<JSAMPROW>(pixels->bytes.data()) + info->next_scanline * row_bytes;
    jpeg_write_scanlines(info, &row, 1);
  }
  jpeg_finish_compress(info);
  return true;
}

}  // namespace

Pixels decode_jpeg(std::string_view bytes, const std::string& name, int64_t max_pixels) {
  JpegReader reader;
  const auto fail = [&](std::string_view reason) {
    throw FileError(fmt::format("{} is not a JPEG image that can be read: {}", name, reason));
  };
  if (!reader.read_header(bytes)) fail(reader.message());
  const jpeg_decompress_struct& info = reader.info();
  const int64_t height = info.image_height, width = info.image_width;
  check_pixels(height, width, max_pixels, name);
  if (info.jpeg_color_space == JCS_CMYK || info.jpeg_color_space == JCS_YCCK)
    fail("it is CMYK, not gray or RGB");
  if (info.arith_code) fail("it is packed by arithmetic coding");
  // Each block of 8 x 8 elements takes a bit; where components are sampled differently, no more than four
  // times as many pixels.
  constexpr int64_t most_pixels_of_a_byte = 4 * 64 * 8;
  if (height * width / most_pixels_of_a_byte > static_cast<int64_t>(bytes.size()))
    fail(fmt::format("its {} x {} pixels cannot come from {} bytes", width, height, bytes.size()));
  if (!reader.start()) fail(reader.message());
  Pixels pixels{height, width, info.output_components, false, {}};
  pixels.bytes.resize(static_cast<size_t>(height * width * pixels.channels));
  if (!reader.read_rows(pixels.bytes.data())) fail(reader.message());
  return pixels;
}

std::string encode_jpeg(const Pixels& pixels, int quality, const std::string& name) {
  JpegErrors errors;
  start_errors(errors);
  jpeg_compress_struct info{};
  info.err = &errors.base;
  unsigned char* buffer = nullptr;
  unsigned long bytes = 0;
  const bool written = write_jpeg(&info, &errors, &pixels, quality, &buffer, &bytes);
  jpeg_destroy_compress(&info);
  std::string output;
  if (written) output.assign(reinterpret_cast<const char*>(buffer), bytes);
  std::free(buffer);
  if (!written) throw FileError(fmt::format("{} cannot be written as JPEG: {}", name, errors.message));
  return output;
}

#else

Pixels decode_jpeg(std::string_view, const std::string& name, int64_t) {
  throw UnsupportedError(name +
                         " is a JPEG image, and this Espalier was built without libjpeg (ESPALIER_JPEG)");
}
std::string encode_jpeg(const Pixels&, int, const std::string& name) {
  throw UnsupportedError(
      name + " shall be a JPEG image, and this Espalier was built without libjpeg (ESPALIER_JPEG)");
}

#endif

}  // namespace espalier::data
