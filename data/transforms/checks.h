// Checks of what transforms are given.
#pragma once
#include <fmt/format.h>

#include <cstdint>
#include <string_view>

#include "espalier/core/error.h"
#include "espalier/data/transforms/resize.h"

namespace espalier::data::transforms {

/// Throws DataError, naming `call`, for what is no probability.
inline void check_probability(double probability, std::string_view call) {
  if (!(probability >= 0 && probability <= 1))
    throw DataError(fmt::format("{}: the probability is {}, not from 0 to 1", call, probability));
}

inline constexpr int64_t most_pixels = int64_t{1} << 20;  ///< of a side

/// Throws ShapeError, naming `call`, for what is no size of an image.
inline void check_size(ImageSize size, std::string_view call) {
  const auto is_side = [](int64_t side) { return side >= 1 && side <= most_pixels; };
  if (!is_side(size.height) || !is_side(size.width))
    throw ShapeError(fmt::format("{}: {} x {} (height x width) is no size from 1 to {}", call, size.height,
                                 size.width, most_pixels));
}

/// Throws ShapeError, naming `call`, for what is no number of pixels around an image.
inline void check_border(int64_t border, std::string_view call) {
  if (border < 0 || border > most_pixels)
    throw ShapeError(
        fmt::format("{}: a border of {} pixels, which are not from 0 to {}", call, border, most_pixels));
}

}  // namespace espalier::data::transforms
