// A random part of an image.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "espalier/data/transforms/resize.h"

namespace espalier::data::transforms {

struct Box {
  int64_t top, left, height, width;
};

/// A part of the image whose area and ratio of width to height lie in these ranges; none if ten draws do not
/// fit into it.
std::optional<Box> random_box(ImageSize image, Range scale, Range ratio, Draws& draws);

/// Throws DataError, naming `call`, unless ranges are positive and in order.
void check_ranges(Range scale, Range ratio, std::string_view call);

}  // namespace espalier::data::transforms
