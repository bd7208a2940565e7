// Times of steps on a GPU and the sizes of their graphs.
#pragma once
#include <espalier/espalier.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <regex>
#include <stdexcept>
#include <string>
#include <vector>

#include "../timing.h"
#include "../workloads.h"

// Seconds per step, where a call of `run` takes `steps` steps: the median of rounds of a fifth of a second.
inline double seconds_of_step(const std::function<void()>& run, int64_t steps, int rounds) {
  run();  // loads kernels
  run();  // captures graphs
  const auto timed = [&](int runs) {
    espalier::synchronize(espalier::gpu());
    return bench::seconds([&] {
      for (int i = 0; i < runs; ++i) run();
      espalier::synchronize(espalier::gpu());
    });
  };
  const int runs = std::max(1, static_cast<int>(0.2 / timed(1)));
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) times.push_back(timed(runs));
  return bench::median(times) / static_cast<double>(runs * steps);
}

inline double seconds_of_step(const workloads::Frozen& frozen, int rounds) {
  return seconds_of_step(frozen.run, frozen.steps, rounds);
}

// The number of nodes of the CUDA graphs of a step, from the text of a plan that has run.
inline double nodes_of(const workloads::Frozen& frozen) {
  const std::string plan = frozen.executor.plan().str();
  std::smatch found;
  if (!std::regex_search(plan, found, std::regex("launched as [^\n]*graphs? of ([0-9]+) nodes")))
    throw std::runtime_error("the plan's text has no number of graph nodes:\n" + plan.substr(0, 400));
  return std::stod(found[1]);
}

inline workloads::Target target(espalier::Precision precision = espalier::Precision::float32,
                                espalier::Launch launch = espalier::Launch::graph) {
  return {.devices = {espalier::gpu()}, .precision = precision, .launch = launch};
}

/// Writes the times of the kernels of some steps into the folder $BENCH_TRACES, if there is one.
inline void trace(const workloads::Frozen& frozen, const std::string& name) {
  const char* folder = std::getenv("BENCH_TRACES");
  if (!folder) return;
  frozen.executor.profile(std::string(folder) + "/" + name + ".json", {.steps = 4});
  frozen.run();
}
