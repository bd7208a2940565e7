// The training job that gpt.cpp and peer/gpt.cpp have in common: one transformer block.
#pragma once

namespace gpt_task {

constexpr int kRows = 64, kBatch = 8, kTokens = 128, kWidth = 256, kHeads = 8, kHidden = 4 * kWidth;
constexpr int kSteps = kRows / kBatch;  // in an epoch
constexpr double kLearningRate = 1e-3;

// The sizes of a job; the default is those above.
struct Size {
  int rows = kRows, batch = kBatch, tokens = kTokens, width = kWidth, heads = kHeads;
  bool attention_op = false;  // attention as one op, instead of products and a softmax
  constexpr int hidden() const { return 4 * width; }
  constexpr int steps() const { return rows / batch; }  // in an epoch
};

}  // namespace gpt_task
