#include "espalier/data/csv.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <string_view>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/data/files/text_line.h"

namespace espalier::data {

namespace {

/// Parses one file into elements of T; booleans are kept as bytes.
template <class T>
class CsvParser {
 public:
  CsvParser(const std::filesystem::path& path, const CsvOptions& options) : path_(path), options_(options) {}

  Tensor parse(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf"))
      text.remove_prefix(3);  // the mark that spreadsheets put before UTF-8
    bool skip = options_.header;
    int64_t rows = 0;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      const std::string_view line = trim(text.substr(0, end));
      text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
      ++line_;
      if (line.empty()) continue;
      if (skip) {
        skip = false;
        continue;
      }
      const int64_t fields = parse_line(line);
      if (rows == 0) {
        columns_ = fields;
        // A number and its separator take at least two bytes, so the reservation is in proportion to the
        // file.
        const size_t lines = 2 + static_cast<size_t>(std::count(text.begin(), text.end(), '\n'));
        values_.reserve(std::min(lines * static_cast<size_t>(fields), values_.size() + text.size() / 2 + 1));
      }
      if (fields != columns_) fail(fmt::format("{} fields, but the first line has {}", fields, columns_));
      ++rows;
    }
    if (rows == 0) throw FileError(fmt::format("{} holds no numbers", path_.string()));
    Tensor result({rows, columns_}, is_half(options_.dtype) ? DType::float32 : options_.dtype);
    std::memcpy(result.address(), values_.data(), values_.size() * sizeof(T));
    return result.to(options_.dtype);
  }

 private:
  /// Appends the numbers of a line and returns their count.
  int64_t parse_line(std::string_view line) {
    for (field_ = 1;; ++field_) {
      const size_t end = line.find(options_.delimiter);
      values_.push_back(number(trim(line.substr(0, end))));
      if (end == std::string_view::npos) return field_;
      line.remove_prefix(end + 1);
    }
  }

  T number(std::string_view field) {
    std::string_view digits = field;
    if (digits.size() >= 2 && digits.front() == '"' && digits.back() == '"')
      digits = trim(digits.substr(1, digits.size() - 2));
    if (digits.size() >= 2 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
    T value{};
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    if (digits.empty() || error == std::errc::invalid_argument || end != digits.data() + digits.size())
      fail(field, "is not a number of type");
    if (error == std::errc::result_out_of_range && !vanishes(digits)) fail(field, "does not fit");
    if (options_.dtype == DType::float16 && overflows<Float16>(value)) fail(field, "does not fit");
    if (options_.dtype == DType::bfloat16 && overflows<BFloat16>(value)) fail(field, "does not fit");
    if (options_.dtype == DType::boolean && value > T(1)) fail(field, "is neither 0 nor 1, as needed for");
    return value;
  }

  /// Whether rounding to 16 bits makes it infinite.
  template <class Half>
  static bool overflows(T value) {
    return std::isinf(static_cast<float>(Half(value))) && !std::isinf(static_cast<double>(value));
  }

  /// from_chars calls numbers too small for the type out of range, too; they are 0.
  static bool vanishes(std::string_view digits) {
    long double wide = 1;
    if constexpr (std::is_floating_point_v<T>)
      std::from_chars(digits.data(), digits.data() + digits.size(), wide);
    return std::abs(wide) < 1;
  }

  std::string_view trim(std::string_view text) const {
    const auto blank = [this](char c) {
      return (c == ' ' || c == '\t' || c == '\r') && c != options_.delimiter;
    };
    while (!text.empty() && blank(text.front())) text.remove_prefix(1);
    while (!text.empty() && blank(text.back())) text.remove_suffix(1);
    return text;
  }

  [[noreturn]] void fail(std::string_view field, std::string_view reason) const {
    const std::string shown = field.size() > 40 ? std::string(field.substr(0, 40)) + "…" : std::string(field);
    fail(fmt::format("field {}, {:?}, {} {}", field_, shown, reason, name(options_.dtype)));
  }
  [[noreturn]] void fail(const std::string& reason) const {
    throw FileError(fmt::format("{}, line {}: {}", path_.string(), line_, reason));
  }

  const std::filesystem::path& path_;
  const CsvOptions& options_;
  std::vector<T> values_;
  int64_t columns_ = 0;
  int64_t line_ = 0;
  int64_t field_ = 0;
};

}  // namespace

Tensor read_csv(const std::filesystem::path& path, const CsvOptions& options, std::source_location where) {
  return located(where, [&] {
    check_delimiter_of_numbers(options.delimiter, "read_csv");
    if (is_small_integer(options.dtype))
      throw TypeError(
          fmt::format("read_csv: the dtype is {}; read int32, and cast it with to()", name(options.dtype)));
    const std::string text = read_file(path);
    return visit_all(options.dtype, [&]<class T>(TypeTag<T>) {
      using Stored = std::conditional_t<std::is_same_v<T, bool>, uint8_t, compute_t<T>>;
      return CsvParser<Stored>(path, options).parse(text);
    });
  });
}

}  // namespace espalier::data
