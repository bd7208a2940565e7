// How many cases a test has that tries many alike.
#pragma once
#include <cstdint>

#include "espalier/core/sanitizers.h"

namespace espalier::testing {

/// `count`, or an eighth of that under a sanitizer, where each case takes several times as long.
constexpr int64_t many_cases(int64_t count) {
  return ESPALIER_ADDRESS_SANITIZER || ESPALIER_THREAD_SANITIZER ? count / 8 : count;
}

}  // namespace espalier::testing
