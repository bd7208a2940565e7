#include "espalier/data/image.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <fstream>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "file_samples.h"
#include "malformed_files.h"
#include "temporary_folder.h"

using namespace espalier;
using data::ImageOptions;
using testing::from_hex, testing::says;

namespace {

struct Folder {
  Tensor parse(const std::string& bytes, const ImageOptions& options = {}) const {
    return data::read_image(folder.write("image", bytes), options);
  }
  Tensor sample(std::string_view digits, const ImageOptions& options = {}) const {
    return parse(from_hex(digits), options);
  }
  testing::TemporaryFolder folder;
};

using Numbers = std::vector<int32_t>;
Numbers list(const Tensor& tensor) {
  const auto values = tensor.span<int32_t>();
  return {values.begin(), values.end()};
}

std::string replaced(std::string bytes, size_t at, const std::string& other) {
  return bytes.replace(at, other.size(), other);
}

/// A PNG chunk with its checksum, by the specification.
std::string chunk(const std::string& type, const std::string& content) {
  const auto number = [](uint32_t value) {
    return std::string{static_cast<char>(value >> 24), static_cast<char>(value >> 16),
                       static_cast<char>(value >> 8), static_cast<char>(value)};
  };
  uint32_t crc = 0xffffffff;
  for (const char c : type + content) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ (crc & 1 ? 0xedb88320 : 0);
  }
  return number(static_cast<uint32_t>(content.size())) + type + content + number(~crc);
}

/// So many letters a, packed by DEFLATE's fixed codes: 258 of them take 13 bits.
std::string packed_letters(size_t runs) {
  std::string bits = "11010010001";                           // the last block, fixed codes, an a
  for (size_t i = 0; i < runs; ++i) bits += "1100010100000";  // 258 letters that are like the one before
  bits += "0000000";
  std::string bytes = from_hex("789c");
  for (size_t i = 0; i < bits.size(); i += 8) {
    unsigned byte = 0;
    for (size_t bit = 0; bit < 8 && i + bit < bits.size(); ++bit) byte |= (bits[i + bit] == '1') << bit;
    bytes.push_back(static_cast<char>(byte));
  }
  uint32_t a = 1, b = 0;  // Adler's checksum
  for (size_t i = 0; i < 1 + 258 * runs; ++i) a = (a + 'a') % 65521, b = (b + a) % 65521;
  for (const uint32_t half : {b, a}) bytes += {static_cast<char>(half >> 8), static_cast<char>(half)};
  return bytes;
}

/// A progressive image of 8 x 8 zeros: a scan for each bit of its coefficients.
std::string jpeg_of_scans(int scans) {
  const std::string quants = from_hex("ffdb004300") + std::string(64, '\1');
  const std::string frame = from_hex("ffc2000b080008000801011100");
  // Bit 0: no difference, or no more in the block.
  const std::string codes = from_hex("ffc40014000100000000000000000000000000000000") +
                            from_hex("ffc40014100100000000000000000000000000000000");
  std::string all = from_hex("ffd8") + quants + frame + codes + from_hex("ffda00080101000000007f");
  for (int i = 1; i < scans; ++i) {
    const auto coefficient = static_cast<char>(1 + (i - 1) / 14);
    const int bit = 13 - (i - 1) % 14, before = bit == 13 ? 0 : bit + 1;
    all += from_hex("ffda0008010100") + coefficient + coefficient + static_cast<char>(before << 4 | bit) +
           '\x7f';
  }
  return all + from_hex("ffd9");
}

/// The most memory that a call has taken, in bytes beyond what there was.
template <class F>
int64_t peak_of(F&& f) {
  const auto kilobytes = [](const std::string& name) {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;)
      if (int64_t value = 0; word == name && status >> value) return value;
    return int64_t{0};
  };
  std::ofstream("/proc/self/clear_refs") << "5";  // the peak is now what there is
  const int64_t before = kilobytes("VmHWM:");
  f();
  return (kilobytes("VmHWM:") - before) * 1024;
}

/// The sample with another header: width, height, and the five bytes after them, in hexadecimal digits.
std::string png_with_header(const std::string& digits) {
  const std::string sample = from_hex(testing::png_rgb);
  return sample.substr(0, 8) + chunk("IHDR", from_hex(digits)) + sample.substr(33);
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(images, Folder)

BOOST_AUTO_TEST_CASE(png_as_the_file_has_it) {
  const Tensor rgb = sample(testing::png_rgb);
  BOOST_TEST(rgb.shape() == Shape({3, 2, 3}));
  BOOST_TEST(list(rgb) == (Numbers{255, 0, 0, 10, 40, 70, 0, 255, 0, 20, 50, 80, 0, 0, 255, 30, 60, 90}));
  const Tensor palette = sample(testing::png_palette);
  BOOST_TEST(palette.shape() == Shape({4, 2, 2}));
  BOOST_TEST(list(palette) == (Numbers{9, 1, 255, 1, 8, 2, 254, 2, 7, 3, 253, 3, 0, 255, 128, 255}));
  BOOST_TEST(list(sample(testing::png_gray16)) == (Numbers{0, 256, 65535}));
  BOOST_TEST(list(sample(testing::png_bits)) == (Numbers{255, 0, 255}));
}

BOOST_AUTO_TEST_CASE(other_channels_and_types) {
  BOOST_TEST(list(sample(testing::png_rgb, {.channels = 1})) == (Numbers{76, 150, 29, 18, 48, 78}));
  const Tensor alpha = sample(testing::png_rgb, {.channels = 4});
  BOOST_TEST(alpha.shape() == Shape({4, 2, 3}));
  BOOST_TEST(alpha.at<int32_t>({3, 1, 1}) == 255);
  BOOST_TEST(list(sample(testing::png_bits, {.channels = 3})) ==
             (Numbers{255, 0, 255, 255, 0, 255, 255, 0, 255}));
  BOOST_TEST(list(sample(testing::png_palette, {.channels = 2}).slice(0, 1, 2).contiguous_copy()) ==
             (Numbers{0, 255, 128, 255}));
  BOOST_TEST(list(sample(testing::png_gray16, {.channels = 2})) ==
             (Numbers{0, 256, 65535, 65535, 65535, 65535}));
  BOOST_TEST(sample(testing::png_rgb, {.dtype = float32}).at<float>({0, 1, 2}) == 70.0f);
  BOOST_TEST(sample(testing::jpeg_rgb, {.channels = 1}).shape() == Shape({1, 8, 16}));
}

BOOST_AUTO_TEST_CASE(jpeg_is_close_to_what_was_packed) {
  const Tensor gray = sample(testing::jpeg_gray);
  BOOST_TEST(gray.shape() == Shape({1, 8, 8}));
  for (int64_t y = 0; y < 8; ++y)
    for (int64_t x = 0; x < 8; ++x)
      BOOST_TEST(std::abs(gray.at<int32_t>({0, y, x}) - static_cast<int32_t>(20 * x + 5 * y)) <= 4);
  const Tensor rgb = sample(testing::jpeg_rgb);
  BOOST_TEST(rgb.shape() == Shape({3, 8, 16}));
  BOOST_TEST(std::abs(rgb.at<int32_t>({0, 4, 2}) - 200) <= 8);
  BOOST_TEST(std::abs(rgb.at<int32_t>({2, 4, 13}) - 180) <= 8);
}

BOOST_AUTO_TEST_CASE(what_is_written_is_read) {
  for (const int64_t channels : {1, 2, 3, 4}) {
    const Tensor image = arange(channels * 6, int32).reshape({channels, 2, 3});
    data::write_image(folder / "a.png", image);
    BOOST_TEST(list(data::read_image(folder / "a.png")) == list(image));
  }
  data::write_image(folder / "a.png", full({2, 3}, 99.6));
  BOOST_TEST(list(data::read_image(folder / "a.png")) == Numbers(6, 100));
  for (const int64_t channels : {1, 3}) {
    data::write_image(folder / "a.jpeg", full({channels, 16, 16}, 120, int64), {.quality = 100});
    for (const int32_t value : list(data::read_image(folder / "a.jpeg")))
      BOOST_REQUIRE(std::abs(value - 120) <= 1);
  }
  BOOST_TEST(folder.files() == 2u);
}

BOOST_AUTO_TEST_CASE(png_files_that_are_none) {
  const std::string rgb = from_hex(testing::png_rgb), signature = rgb.substr(0, 8), head = rgb.substr(0, 33);
  const std::string end = chunk("IEND", "");
  testing::refuses_all(
      [&](const std::string& bytes) { (void)parse(bytes); },
      {{"", {"image", "neither a PNG nor a JPEG", "image_test.cpp"}},
       {"GIF89a", {"neither"}},
       {rgb.substr(0, 7), {"neither"}},
       {signature, {"ends too early"}},
       {head, {"ends too early"}},
       {head + end, {"PNG image"}},
       {signature + end, {"PNG image"}},
       {replaced(rgb, 16, "\xff"), {"PNG image"}},
       {replaced(rgb, 30, "x"), {"CRC"}},
       {replaced(rgb, 8, from_hex("ffffffff")), {"PNG image"}},
       {png_with_header("00000000000000020802000000"), {"PNG image"}},
       {png_with_header("00000003000000000802000000"), {"PNG image"}},
       {png_with_header("80000000000000020802000000"), {"PNG image"}},
       {png_with_header("7fffffff7fffffff0802000000"), {"PNG image"}},
       {png_with_header("000f4240000f42400802000000"), {"1000000 x 1000000", "max_pixels"}},
       {png_with_header("0000400000003fff1002000000"), {"16384 x 16383", "cannot come from"}},
       {png_with_header("00000003000000030802000000"), {"PNG image"}},
       {png_with_header("00000003000000020302000000"), {"PNG image"}},
       {png_with_header("00000003000000020801000000"), {"PNG image"}},
       {png_with_header("00000003000000020802010000"), {"PNG image"}},
       {png_with_header("00000003000000020802000100"), {"PNG image"}},
       {png_with_header("00000003000000020802000002"), {"PNG image"}},
       {png_with_header("00000003000000020803000000"), {"PNG image"}},
       {head + chunk("IDAT", "xxxxxxxx") + end, {"PNG image"}},
       {head + chunk("IDAT", "") + end, {"PNG image"}},
       {rgb.substr(0, rgb.size() - 12), {"ends too early"}}});
}

// They would be unpacked and kept: 160 MB.
BOOST_AUTO_TEST_CASE(png_chunks_beside_the_pixels_are_skipped) {
  const std::string rgb = from_hex(testing::png_rgb), text = packed_letters(31000);
  const std::string name = std::string("a") + '\0';
  std::string beside;
  for (int i = 0; i < 10; ++i)
    beside +=
        chunk("zTXt", name + '\0' + text) + chunk("iTXt", name + '\1' + '\0' + name + "b" + '\0' + text);
  std::string bytes = rgb.substr(0, 33) + beside + rgb.substr(33);
  Tensor image;
  const int64_t peak = peak_of([&] { image = parse(bytes); });
  BOOST_TEST(peak < int64_t{32} << 20);
  BOOST_TEST(list(image) == list(sample(testing::png_rgb)));
}

BOOST_AUTO_TEST_CASE(jpeg_files_that_are_none) {
  const std::string gray = from_hex(testing::jpeg_gray), end = from_hex("ffd9"), start = from_hex("ffd8");
  const size_t frame = gray.find(from_hex("ffc0")), scan = gray.find(from_hex("ffda"));
  const size_t tables = gray.find(from_hex("ffc4")), quants = gray.find(from_hex("ffdb"));
  BOOST_REQUIRE(scan != std::string::npos && frame != std::string::npos);
  const auto framed = [&](size_t at, const char* digits) {
    return replaced(gray, frame + at, from_hex(digits));
  };
  testing::refuses_all([&](const std::string& bytes) { (void)parse(bytes); },
                       {{from_hex("ffd8"), {"neither"}},
                        {from_hex("ffd8ff"), {"JPEG image"}},
                        {start + end, {"JPEG image"}},
                        {start + from_hex("ffffffffffff"), {"JPEG image"}},
                        {gray.substr(0, frame), {"JPEG image"}},
                        {gray.substr(0, scan), {"JPEG image"}},
                        {gray.substr(0, scan) + end, {"JPEG image"}},
                        {gray.substr(0, gray.size() - 2), {"JPEG image", "remature"}},
                        {gray.substr(0, scan + 12) + end, {"JPEG image"}},
                        {gray.substr(0, frame) + gray.substr(scan), {"JPEG image"}},
                        {gray.substr(0, quants) + gray.substr(frame), {"JPEG image", "uantization"}},
                        {framed(2, "0000"), {"JPEG image"}},
                        {framed(2, "ffff"), {"JPEG image"}},
                        {framed(4, "00"), {"JPEG image"}},
                        {framed(4, "0c"), {"JPEG image"}},
                        {framed(5, "0000"), {"JPEG image"}},
                        {framed(7, "0000"), {"JPEG image"}},
                        {framed(5, "fff0fff0"), {"65500"}},
                        {framed(5, "ffd0ffd0"), {"65488 x 65488", "max_pixels"}},
                        {framed(5, "3fff4000"), {"16384 x 16383", "cannot come from"}},
                        {framed(5, "01000100"), {"JPEG image"}},
                        {framed(9, "00"), {"JPEG image"}},
                        {framed(9, "ff"), {"JPEG image"}},
                        {framed(11, "00"), {"JPEG image"}},
                        {framed(11, "ff"), {"JPEG image"}},
                        {framed(12, "07"), {"JPEG image"}},
                        {replaced(gray, tables + 2, from_hex("0000")), {"JPEG image"}},
                        {replaced(gray, tables + 5, std::string(16, '\xff')), {"JPEG image"}},
                        {from_hex(testing::jpeg_cmyk), {"CMYK"}}});
}

BOOST_AUTO_TEST_CASE(jpeg_scans_are_bounded) {
  BOOST_TEST(parse(jpeg_of_scans(500)).at<int32_t>({0, 0, 0}) == 128);
  BOOST_CHECK_EXCEPTION(parse(jpeg_of_scans(501)), FileError, says({"500 scans"}));
}

BOOST_AUTO_TEST_CASE(damage) {
  const auto read = [&](const std::string& bytes) { (void)parse(bytes); };
  for (const auto& image : {testing::png_rgb, testing::png_palette, testing::png_gray16})
    testing::refuses_every_truncation(read, from_hex(image));
  for (const auto& image : {testing::png_rgb, testing::png_palette, testing::jpeg_gray, testing::jpeg_rgb})
    testing::survives_damage(read, from_hex(image), 1000);
  for (const auto& image : {testing::jpeg_gray, testing::jpeg_rgb})
    testing::refuses_every_truncation(read, from_hex(image));
}

BOOST_AUTO_TEST_CASE(arguments) {
  const Tensor image = zeros({3, 4, 4}, int32);
  BOOST_CHECK_EXCEPTION(sample(testing::png_rgb, {.channels = 5}), DataError, says({"5 channels"}));
  BOOST_CHECK_EXCEPTION(sample(testing::png_rgb, {.dtype = boolean}), TypeError, says({"bool"}));
  BOOST_CHECK_EXCEPTION(sample(testing::png_rgb, {.max_pixels = 5}), FileError,
                        says({"3 x 2", "max_pixels"}));
  BOOST_CHECK_THROW(data::read_image(folder / "none.png"), FileError);
  const auto refuses = [&]<class E>(const E*, const char* file, const Tensor& given, const std::string& part,
                                    const data::ImageWriteOptions& options = {}) {
    BOOST_CHECK_EXCEPTION(data::write_image(folder / file, given, options), E,
                          says({part, "image_test.cpp"}));
  };
  refuses(static_cast<FileError*>(nullptr), "a.gif", image, ".png");
  refuses(static_cast<ShapeError*>(nullptr), "a.png", zeros({5, 4, 4}), "[5, 4, 4]");
  refuses(static_cast<ShapeError*>(nullptr), "a.jpg", zeros({4, 4, 4}), "1 or 3 channels");
  refuses(static_cast<ShapeError*>(nullptr), "a.png", zeros({4}), "[4]");
  refuses(static_cast<ShapeError*>(nullptr), "a.png", zeros({3, 0, 4}), "[3, 0, 4]");
  refuses(static_cast<TypeError*>(nullptr), "a.png", zeros({4, 4}, boolean), "bool");
  refuses(static_cast<TypeError*>(nullptr), "a.png", Tensor(), "undefined");
  refuses(static_cast<DataError*>(nullptr), "a.png", full({4, 4}, 256), "256");
  refuses(static_cast<DataError*>(nullptr), "a.png", full({4, 4}, -1, int32), "-1");
  refuses(static_cast<DataError*>(nullptr), "a.png", full({4, 4}, std::nan("")), "nan");
  refuses(static_cast<DataError*>(nullptr), "a.jpg", image, "quality", {.quality = 0});
  BOOST_TEST(folder.files() == 1u);  // the sample
}

BOOST_AUTO_TEST_SUITE_END()
