// Checks of what random transforms are given.
#pragma once
#include <fmt/format.h>

#include <source_location>
#include <string_view>

#include "espalier/core/error.h"

namespace espalier::data::transforms {

/// Throws DataError, naming `call`, for what is no probability.
inline double checked_probability(double probability, std::string_view call,
                                  const std::source_location& where) {
  return located(where, [&] {
    if (!(probability >= 0 && probability <= 1))
      throw DataError(fmt::format("{}: the probability is {}, not from 0 to 1", call, probability));
    return probability;
  });
}

}  // namespace espalier::data::transforms
