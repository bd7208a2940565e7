// Checks of the numbers that windows are described by.
#pragma once
#include <fmt/format.h>

#include <string_view>

#include "espalier/core/error.h"
#include "espalier/core/shape.h"
#include "espalier/ops/functions/windows.h"

namespace espalier {

inline constexpr int64_t most_of_a_window = 0x3fffffff;  // so that sums of sizes stay countable

/// Throws Error unless `least` ≤ number ≤ most_of_a_window. `what` names it, and `function` the caller.
inline void check_window_number(int64_t number, int64_t least, std::string_view what,
                                std::string_view function) {
  if (number < least || number > most_of_a_window)
    throw Error(fmt::format("{}: a {} of {}", function, what, number));
}

/// Throws ShapeError unless there is one number for all axes or one for each.
inline void check_window_count(size_t count, size_t axes, std::string_view what, std::string_view function) {
  if (count != 1 && count != axes)
    throw ShapeError(
        fmt::format("{}: {} {} numbers for {} {}", function, count, what, axes, axes == 1 ? "axis" : "axes"));
}

/// How many parts each axis is divided into.
inline Dims parts_of_axes(const PerAxis& list, size_t axes, std::string_view function) {
  if (list.size() != 1 && list.size() != axes)
    throw ShapeError(fmt::format("{}: {} numbers of parts for {} {}", function, list.size(), axes,
                                 axes == 1 ? "axis" : "axes"));
  Dims all;
  for (size_t i = 0; i < axes; ++i) {
    if (list[i] < 1 || list[i] > most_of_a_window)
      throw Error(fmt::format("{}: an axis cannot have {} parts", function, list[i]));
    all.push_back(list[i]);
  }
  return all;
}

/// One checked number for each axis.
inline Dims numbers_for_axes(const PerAxis& list, size_t axes, int64_t least, std::string_view what,
                             std::string_view function) {
  check_window_count(list.size(), axes, what, function);
  Dims all;
  for (size_t i = 0; i < axes; ++i) {
    check_window_number(list[i], least, what, function);
    all.push_back(list[i]);
  }
  return all;
}

/// Throws unless there is one of each number or one for each axis, and each is in its range.
inline void check_window(const WindowOptions& o, size_t axes, std::string_view function) {
  const auto check = [&](const PerAxis& list, int64_t least, std::string_view what) {
    check_window_count(list.size(), axes, what, function);
    for (size_t i = 0; i < axes; ++i) check_window_number(list[i], least, what, function);
  };
  check(o.kernel, 1, "kernel");
  check(o.stride, 1, "stride");
  check(o.padding, 0, "padding");
  check(o.dilation, 1, "dilation");
}

}  // namespace espalier
