// Which values of a step a Runtime looks at for NaN and infinities.
#pragma once
#include <cstdint>

namespace espalier {

enum class NanSearch : uint8_t {
  off,
  results,    ///< the loss, the value, and what is written to leaves
  exchanged,  ///< also gradients before they are exchanged or accumulated; scaled ones may overflow
};

}  // namespace espalier
