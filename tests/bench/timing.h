// What the benchmark programs share: a clock, a median, and one line "name value" per result, which run.sh
// reads.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace bench {

// Seconds that `work` took.
template <class Work>
double seconds(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

inline void report(const char* name, double value) { std::printf("%-28s %12.1f\n", name, value); }

// How often the contestants take turns: the first argument, 5 if there is none.
inline int rounds(int argc, char** argv) { return argc > 1 ? std::max(1, std::atoi(argv[1])) : 5; }

// The benchmarks run at one thread unless OMP_NUM_THREADS says otherwise.
inline int threads() {
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  return wanted ? std::max(1, std::atoi(wanted)) : 1;
}

}  // namespace bench
