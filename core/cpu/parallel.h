// One loop over several threads, when it is long enough to pay for them.
#pragma once
#include <algorithm>
#include <cstdint>
#include <exception>

#include "espalier/core/cpu/contention.h"
#include "espalier/core/device.h"

namespace espalier {

/// Calls `f(begin, end)` over ranges that cover 0 to `n`, on several threads if each gets at least `grain`.
/// Rethrows one of the exceptions of the calls.
template <class F>
void parallel_for(int64_t n, int64_t grain, F&& f) {
#ifdef _OPENMP
  const int64_t threads = n >= 2 * grain ? std::min<int64_t>(num_threads(), n / grain) : 1;
  if (threads > 1 && !Contention::here()) {
    const int count = static_cast<int>(threads);
    std::exception_ptr error;  // exceptions must not leave a parallel region
    const auto begin = Contention::Clock::now();
    auto own_end = begin;
#pragma omp parallel for num_threads(count) schedule(static)
    for (int64_t t = 0; t < threads; ++t) {
      try {
        f(n * t / threads, n * (t + 1) / threads);
      } catch (...) {
#pragma omp critical(espalier_parallel_for)
        error = std::current_exception();
      }
      if (t == 0) own_end = Contention::Clock::now();
    }
    Contention::report(own_end - begin, Contention::Clock::now() - own_end);
    if (error) std::rethrow_exception(error);
    return;
  }
#else
  (void)grain;
#endif
  if (n > 0) f(int64_t{0}, n);
}

}  // namespace espalier
