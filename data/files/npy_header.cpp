#include "espalier/data/files/npy_header.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "espalier/core/error.h"

namespace espalier::data {

namespace {

constexpr std::string_view npy_magic = "\x93NUMPY";
constexpr uint32_t largest_npy_header = 1 << 20;  // 64 axes and the longest numbers take less than 2 KiB

class NpyHeaderParser {
 public:
  NpyHeaderParser(const ByteSource& file, std::string_view text) : file_(file), rest_(text) {}

  NpyHeader parse() {
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
      if (shape.rank() > most_npy_axes) fail(fmt::format("more than {} axes", most_npy_axes));
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

  const ByteSource& file_;
  std::string_view rest_;
};

}  // namespace

NpyHeader read_npy_header(ByteSource& source) {
  char start[8] = {};
  if (source.remaining() < sizeof(start)) source.fail("is too short for a .npy file");
  source.read(start, sizeof(start));
  if (!std::string_view(start, sizeof(start)).starts_with(npy_magic)) source.fail("is not a .npy file");
  const int version = start[6];
  if (version < 1 || version > 3)
    source.fail(fmt::format("has version {} of the .npy format, not 1 to 3", version));
  uint32_t length = 0;
  const size_t width = version == 1 ? 2 : 4;
  source.read(&length, width);
  if (length > source.remaining())
    source.fail(fmt::format("is cut off: its header of {} bytes leaves the file", length));
  if (length > largest_npy_header)
    source.fail(fmt::format("has a header of {} bytes, which no array needs", length));
  std::string text(length, '\0');
  source.read(text.data(), length);
  return NpyHeaderParser(source, text).parse();
}

std::string npy_header(const std::string& descr, const Shape& shape) {
  if (shape.rank() > most_npy_axes)
    throw ShapeError(
        fmt::format("the shape {} has more than the {} axes of NumPy's format", shape.str(), most_npy_axes));
  std::string header = fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", descr,
                                   fmt::join(shape, ", "), shape.rank() == 1 ? "," : "");
  // Magic, version and length take 10 bytes; the elements begin at a multiple of 64, after a line's end.
  header.append(63 - (header.size() + 10) % 64, ' ').push_back('\n');
  std::string start(npy_magic);
  start += {'\1', '\0', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  return start + header;
}

}  // namespace espalier::data
