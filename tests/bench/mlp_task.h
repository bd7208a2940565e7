// The training job that mlp.cpp and peer/mlp.cpp have in common.
#pragma once
#include <cstdint>

namespace task {

constexpr int64_t kRows = 16384, kInputs = 100, kHidden = 1000, kOutputs = 10, kBatch = 256;
constexpr int kEpochs = 5;
constexpr int64_t kSteps = kEpochs * (kRows / kBatch);  // in one timed run
constexpr double kLearningRate = 0.001;

}  // namespace task
