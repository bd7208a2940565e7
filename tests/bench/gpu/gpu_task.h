// The jobs that bench.cpp and peer.py have in common; peer.py reads the numbers in this file.
#pragma once
#include <cstdint>
#include <vector>

#include "../gpt_task.h"

namespace gpu_task {

// A transformer block large enough to keep a GPU busy.
constexpr gpt_task::Size kGptLarge = {.rows = 64, .batch = 8, .tokens = 1024, .width = 1024, .heads = 16};

// Elements of each operand of the pointwise expression.
constexpr int64_t kPointwise16M = 16777216, kPointwise256M = 268435456;
// The minimal traffic for an element: three floats are read, and one or three written.
constexpr double kForwardBytes = 16, kBackwardBytes = 24;

// The parameters that Adam updates: their number for each size, 65.7M elements in total. Parameter and both
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

// The number of additions in the chain that measures the overhead of an op.
constexpr int kChain = 10000;

// Steps in an epoch of the MLP where the time between epochs is not measured; few enough to fit into the
// device's queue.
constexpr int kLongEpoch = 512;

// Batches of the convolutional networks and of the LSTM, and the steps in an epoch of each.
constexpr int64_t kDigits = 256;
constexpr int64_t kImages = 64, kPixels = 224;
constexpr int64_t kSequences = 64, kLength = 100, kWidth = 512;
constexpr int64_t kNetworkSteps = 8;

// Attention alone.
constexpr int64_t kBatchOfHeads = 8, kHeads = 16, kTokens = 1024, kHeadWidth = 64;

}  // namespace gpu_task
