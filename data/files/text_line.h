// Text files line by line, and numbers in them, whatever the locale.
#pragma once
#include <fmt/format.h>

#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <system_error>

#include "espalier/core/error.h"

namespace espalier::data {

/// Takes the first line off `text`, without the end of the line.
inline std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

/// Without what `blanks` has of spaces, at both ends.
inline std::string_view trimmed(std::string_view text, std::string_view blanks = " \t") {
  const size_t begin = text.find_first_not_of(blanks);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(blanks) - begin + 1);
}

/// Throws DataError for a delimiter that fields without quotes cannot have between them.
inline void check_delimiter_of_numbers(char delimiter, std::string_view function) {
  if (std::isalnum(static_cast<unsigned char>(delimiter)) || std::strchr("+-.\"\r\n", delimiter))
    throw DataError(
        fmt::format("{}: the delimiter {:?} could be part of a number or a line's end", function, delimiter));
}

enum class NumberText { number, no_number, too_large };

/// The number that is all of `text`. Reals too small for the type are 0.
template <class T>
NumberText parse_number(std::string_view text, T& value) {
  if (text.size() >= 2 && text[0] == '+' && text[1] != '-' && text[1] != '+') text.remove_prefix(1);
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error == std::errc::invalid_argument || stop != end) return NumberText::no_number;
  if (error != std::errc::result_out_of_range) return NumberText::number;
  if constexpr (std::is_floating_point_v<T>) {
    long double wide = 1;
    const auto result = std::from_chars(text.data(), end, wide);
    // Where not even long double has it, the exponent's sign tells which end was left.
    const bool below = result.ec == std::errc()
                           ? std::abs(wide) < 1
                           : text.find("e-") != text.npos || text.find("E-") != text.npos;
    if (below) {
      value = T(0);
      return NumberText::number;
    }
  }
  return NumberText::too_large;
}

/// At most 40 bytes of a text, for messages.
inline std::string shortened(std::string_view text) {
  return text.size() > 40 ? std::string(text.substr(0, 40)) + "…" : std::string(text);
}

}  // namespace espalier::data
