#include "espalier/executor/training/occupancy.h"

#include <fmt/format.h>

#include "espalier/core/error.h"

namespace espalier {

const void* this_thread() noexcept {
  static thread_local const char mark = 0;
  return &mark;
}

void Occupancy::refuse(const char* what) const {
  if (has_this_thread())
    throw Error(fmt::format("{}: the executor is in the middle of a step, which called this", what));
  throw Error(fmt::format(
      "{}: another thread is inside {}() of this executor, which serves one thread at a time; give "
      "each thread an executor of its own (run() of an inference executor on one device serves "
      "several)",
      what, what_.load(std::memory_order_relaxed)));
}

}  // namespace espalier
