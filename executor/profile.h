// What Executor::profile is asked for.
#pragma once
#include <cstdint>

namespace espalier {

struct ProfileOptions {
  /// How many of the steps to come are recorded.
  int64_t steps = 10;
};

}  // namespace espalier
