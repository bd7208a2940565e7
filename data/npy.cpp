#include "espalier/data/npy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <optional>
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"

namespace espalier::data {

namespace {

static_assert(std::endian::native == std::endian::little);

constexpr std::string_view magic = "\x93NUMPY";
constexpr size_t most_axes = 64;  // as many as NumPy has

struct Header {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
};

/// Reads the header: a Python dict literal with the keys 'descr', 'fortran_order' and 'shape'. format: NEP 1.
class HeaderParser {
 public:
  HeaderParser(const InputFile& file, std::string_view text) : file_(file), rest_(text) {}

  Header parse() {
    std::optional<std::string> descr;
    std::optional<bool> fortran_order;
    std::optional<Shape> shape;
    expect('{');
    while (!accept('}')) {
      const std::string key = quoted();
      expect(':');
      if (key == "descr" && !descr)
        descr = quoted();
      else if (key == "fortran_order" && !fortran_order)
        fortran_order = boolean();
      else if (key == "shape" && !shape)
        shape = tuple();
      else
        fail(fmt::format("the key {:?}", key));
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (!rest_.empty()) fail("text after it");
    if (!descr || !fortran_order || !shape) fail("descr, fortran_order or shape missing");
    return {*descr, *fortran_order, *shape};
  }

 private:
  void skip_blanks() { rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size())); }
  bool accept(std::string_view token) {
    skip_blanks();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }
  bool accept(char token) { return accept(std::string_view(&token, 1)); }
  void expect(char token) {
    if (!accept(token)) fail(fmt::format("{:?} expected before {:?}", token, rest_.substr(0, 20)));
  }
  std::string quoted() {
    const char quote = accept('"') ? '"' : '\'';
    if (quote == '\'') expect(quote);
    const size_t end = rest_.find(quote);
    if (end == std::string_view::npos) fail("a string without end");
    const std::string text(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return text;
  }
  bool boolean() {
    if (accept("True")) return true;
    if (!accept("False")) fail("fortran_order is neither True nor False");
    return false;
  }
  Shape tuple() {
    Shape shape;
    expect('(');
    while (!accept(')')) {
      int64_t size = -1;
      skip_blanks();
      const auto [end, error] = std::from_chars(rest_.data(), rest_.data() + rest_.size(), size);
      if (error != std::errc() || size < 0) fail(fmt::format("the size {:?}", rest_.substr(0, 20)));
      rest_.remove_prefix(static_cast<size_t>(end - rest_.data()));
      accept('L');  // written by Python 2
      shape.dims().push_back(size);
      if (shape.rank() > most_axes) fail(fmt::format("more than {} axes", most_axes));
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return shape;
  }
  [[noreturn]] void fail(const std::string& what) const {
    file_.fail(fmt::format("is not a .npy file that can be read; in its header: {}", what));
  }

  const InputFile& file_;
  std::string_view rest_;
};

Header read_header(InputFile& file) {
  char start[8] = {};
  if (file.size() < sizeof(start)) file.fail("is too short for a .npy file");
  file.read(start, sizeof(start));
  if (!std::string_view(start, sizeof(start)).starts_with(magic)) file.fail("is not a .npy file");
  const int version = start[6];
  if (version < 1 || version > 3)
    file.fail(fmt::format("has version {} of the .npy format, not 1 to 3", version));
  uint32_t length = 0;
  const size_t width = version == 1 ? 2 : 4;
  file.read(&length, width);
  if (length > file.remaining())
    file.fail(fmt::format("is cut off: its header of {} bytes leaves the file", length));
  std::string text(length, '\0');
  file.read(text.data(), length);
  return HeaderParser(file, text).parse();
}

/// How elements of the file become elements of the tensor.
struct Format {
  std::string_view descr;
  DType dtype;
  size_t bytes;
  void (*convert)(const char* from, char* to, int64_t count);  // null: a plain copy
};

template <class From, class To>
void convert(const char* from, char* to, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    From value;
    std::memcpy(&value, from + static_cast<size_t>(i) * sizeof(From), sizeof(From));
    const To result = static_cast<To>(value);  // bytes other than 0 and 1 must not become a bool as they are
    std::memcpy(to + static_cast<size_t>(i) * sizeof(To), &result, sizeof(To));
  }
}

constexpr Format formats[] = {
    {"f4", DType::float32, 4, nullptr},
    {"f8", DType::float64, 8, nullptr},
    {"i4", DType::int32, 4, nullptr},
    {"i8", DType::int64, 8, nullptr},
    {"b1", DType::boolean, 1, convert<uint8_t, bool>},
    {"f2", DType::float16, 2, nullptr},
    {"i1", DType::int32, 1, convert<int8_t, int32_t>},
    {"u1", DType::int32, 1, convert<uint8_t, int32_t>},
    {"i2", DType::int32, 2, convert<int16_t, int32_t>},
    {"u2", DType::int32, 2, convert<uint16_t, int32_t>},
    {"u4", DType::int64, 4, convert<uint32_t, int64_t>},
};

const Format& format_of(const InputFile& file, std::string_view descr) {
  const char order = descr.empty() ? ' ' : descr[0];
  if (order == '>') file.fail(fmt::format("has big-endian numbers ({}), which are not supported", descr));
  for (const Format& format : formats)
    if ((order == '<' || order == '=' || (order == '|' && format.bytes == 1)) &&
        descr.substr(1) == format.descr)
      return format;
  file.fail(fmt::format("has elements of type {:?}, which are not supported", descr));
}

/// The elements, as many as the header says and the file holds.
Tensor read_elements(InputFile& file, const Format& format, const Shape& shape) {
  int64_t bytes = static_cast<int64_t>(format.bytes);
  bool overflow = false, empty = false;
  for (const int64_t size : shape) {
    empty |= size == 0;
    overflow |= size != 0 && __builtin_mul_overflow(bytes, size, &bytes);
  }
  if (empty) bytes = 0;
  // Checked before the allocation: a corrupt header may announce any size.
  if (overflow || static_cast<uint64_t>(bytes) != file.remaining())
    file.fail(fmt::format("has {} bytes of elements, which is not what its shape {} of type {} takes",
                          file.remaining(), shape.str(), format.descr));
  Tensor result(shape, format.dtype);
  if (!format.convert) {
    file.read(result.address(), static_cast<size_t>(bytes));
  } else {
    std::string raw(static_cast<size_t>(bytes), '\0');
    file.read(raw.data(), raw.size());
    format.convert(raw.data(), static_cast<char*>(result.address()), result.elements());
  }
  return result;
}

/// The same elements with the axes in reverse.
Tensor transposed(const Tensor& tensor) {
  Layout layout = tensor.layout();
  std::reverse(layout.shape.dims().begin(), layout.shape.dims().end());
  std::reverse(layout.strides.begin(), layout.strides.end());
  return Tensor(tensor.storage(), layout, tensor.dtype()).contiguous_copy();
}

const char* descr_of(DType dtype) {
  switch (dtype) {
    case DType::float32: return "<f4";
    case DType::float64: return "<f8";
    case DType::int32: return "<i4";
    case DType::int64: return "<i8";
    case DType::float16: return "<f2";
    case DType::bfloat16: throw TypeError("write_npy: the format has no bfloat16; write to(float32) instead");
    case DType::boolean: break;
  }
  return "|b1";
}

}  // namespace

Tensor read_npy(const std::filesystem::path& path, std::source_location where) {
  return located(where, [&] {
    InputFile file(path);
    Header header = read_header(file);
    const Format& format = format_of(file, header.descr);
    if (!header.fortran_order) return read_elements(file, format, header.shape);
    std::reverse(header.shape.dims().begin(), header.shape.dims().end());
    return transposed(read_elements(file, format, header.shape));
  });
}

void write_npy(const std::filesystem::path& path, const Tensor& tensor, std::source_location where) {
  located(where, [&] {
    if (!tensor.defined()) throw TypeError("write_npy: the tensor is undefined");
    if (tensor.rank() > most_axes)
      throw ShapeError(
          fmt::format("write_npy: the shape {} has more than {} axes", tensor.shape().str(), most_axes));
    const Tensor plain = tensor.to(cpu()).contiguous_copy();
    std::string header =
        fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr_of(plain.dtype()),
                    fmt::join(plain.shape(), ", "), plain.rank() == 1 ? "," : "");
    // Magic, version and length take 10 bytes; the elements begin at a multiple of 64, after a line's end.
    header.append(63 - (header.size() + 10) % 64, ' ').push_back('\n');
    std::string start(magic);
    start += {'\1', '\0', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
    AtomicFile file(path);
    file.write(start + header);
    if (plain.bytes()) file.write(plain.address(), plain.bytes());
    file.commit();
  });
}

}  // namespace espalier::data
