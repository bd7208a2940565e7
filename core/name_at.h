// NameAt, NumberAt: a name or a number with the line that gives it.
#pragma once
#include <concepts>
#include <cstdint>
#include <source_location>
#include <string_view>
#include <utility>

namespace espalier {

/// The operand of a subscript, which has no argument for the line of its errors.
struct NameAt {
  template <std::convertible_to<std::string_view> Text>
  NameAt(const Text& name, std::source_location line = std::source_location::current())
      : text(name), where(line) {}

  std::string_view text;
  std::source_location where;
};

/// A number beyond 63 bits becomes the largest of them.
struct NumberAt {
  template <std::integral T>
  NumberAt(T value, std::source_location line = std::source_location::current())
      : number(std::in_range<int64_t>(value) ? static_cast<int64_t>(value) : INT64_MAX), where(line) {}

  int64_t number;
  std::source_location where;
};

}  // namespace espalier
