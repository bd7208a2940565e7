// Helpers of the benchmark programs: a clock, a median, the process's memory, and one line "name value" per
// result, which table.sh reads. The benchmarks of Espalier and of its peers include this.
#pragma once
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <string>
#include <vector>

namespace bench {

// The seconds that `work` takes.
template <class Work>
double seconds(Work&& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// The processor time of this process so far, of all its threads.
inline double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

inline double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// The median of `runs` calls, after one that warms caches and allocators.
template <class Work>
double median_seconds(int runs, Work&& work) {
  work();
  std::vector<double> times;
  for (int run = 0; run < runs; ++run) times.push_back(seconds(work));
  return median(std::move(times));
}

inline void report(const std::string& name, double value) {
  std::printf("%-36s %12.3f\n", name.c_str(), value);
  std::fflush(stdout);  // also if the program is stopped later
}

// A line of the system's report on this process in MB; 0 where there is none.
inline double status_megabytes(const char* line) {
  std::ifstream status("/proc/self/status");
  for (std::string word; status >> word;)
    if (word == line) {
      double kilobytes = 0;
      status >> kilobytes;
      return kilobytes / 1024;
    }
  return 0;
}

// The memory of this process, libraries included: the peak so far, and now.
inline double peak_megabytes() { return status_megabytes("VmHWM:"); }
inline double resident_megabytes() { return status_megabytes("VmRSS:"); }

// The number of rounds: the last argument if it is a number, else 5.
inline int rounds(int argc, char** argv) {
  const int given = argc > 1 ? std::atoi(argv[argc - 1]) : 0;
  return given > 0 ? given : 5;
}

// The number of threads: OMP_NUM_THREADS, by default 1.
inline int threads() {
  const char* wanted = std::getenv("OMP_NUM_THREADS");
  return wanted ? std::max(1, std::atoi(wanted)) : 1;
}

}  // namespace bench
