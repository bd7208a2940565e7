#include "espalier/data/transforms/random_box.h"

#include <fmt/format.h>

#include <cmath>

#include "espalier/core/error.h"

namespace espalier::data::transforms {

std::optional<Box> random_box(ImageSize image, Range scale, Range ratio, Draws& draws) {
  const double area = static_cast<double>(image.height) * static_cast<double>(image.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double target = area * draws.uniform(scale.low, scale.high);
    const double width_to_height = std::exp(draws.uniform(std::log(ratio.low), std::log(ratio.high)));
    // As reals: beside an extreme ratio they may be beyond all integers.
    const double wide = std::round(std::sqrt(target * width_to_height)),
                 high = std::round(std::sqrt(target / width_to_height));
    if (!(wide >= 1 && high >= 1 && wide <= static_cast<double>(image.width) &&
          high <= static_cast<double>(image.height)))
      continue;
    const auto width = static_cast<int64_t>(wide), height = static_cast<int64_t>(high);
    const int64_t top = draws.integer(0, image.height - height), left = draws.integer(0, image.width - width);
    return Box{top, left, height, width};
  }
  return {};
}

void check_ranges(Range scale, Range ratio, std::string_view call) {
  const auto is_range = [](Range range) {
    return range.low > 0 && range.low <= range.high && std::isfinite(range.high);
  };
  if (!is_range(scale) || scale.high > 1)
    throw DataError(fmt::format("{}: the scale is from {} to {}, which are no shares of an area", call,
                                scale.low, scale.high));
  if (!is_range(ratio))
    throw DataError(fmt::format("{}: the ratio is from {} to {}, which is no range of positive numbers", call,
                                ratio.low, ratio.high));
}

}  // namespace espalier::data::transforms
