// The jobs for a GPU on which the contestants of bench.cpp and peer.py meet; the latter reads the numbers
// here.
#pragma once
#include <cstdint>
#include <vector>

#include "../gpt_task.h"

namespace gpu_task {

// A transformer block large enough to keep a GPU busy.
constexpr gpt_task::Size kGptLarge = {.rows = 64, .batch = 8, .tokens = 1024, .width = 1024, .heads = 16};

// Elements of each operand of the pointwise expression.
constexpr int64_t kPointwise16M = 16777216, kPointwise256M = 268435456;
// What moves at least, for an element: three floats are read, and one or three written.
constexpr double kForwardBytes = 16, kBackwardBytes = 24;

// Parameters that Adam updates: so many of each of these sizes, 65.7M elements together. Parameter and both
// moments are read and written, the gradient is read.
constexpr int64_t kParameterSizes[] = {1024, 3072, 262144, 1048576};
constexpr int kParametersOfASize = 50;
constexpr double kAdamBytes = 28;

inline std::vector<int64_t> parameter_sizes() {
  std::vector<int64_t> sizes;
  for (int i = 0; i < kParametersOfASize; ++i)
    sizes.insert(sizes.end(), std::begin(kParameterSizes), std::end(kParameterSizes));
  return sizes;
}

// Adds in the chain that shows what an op costs beyond its arithmetic.
constexpr int kChain = 10000;

// Steps in an epoch of the MLP where the time between epochs is not what is asked; few enough to wait in a
// device's queue all together.
constexpr int kLongEpoch = 512;

}  // namespace gpu_task
