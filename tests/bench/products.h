// The matrix products of a step of each workload. Weights are stored as [out, in].
#pragma once
#include <array>

#include "gemm.h"
#include "gpt_task.h"

namespace bench {

enum MlpProduct { kForward1, kForward2, kData2, kWeight2, kWeight1 };
constexpr std::array<Product, 5> kMlpProducts = {{
    {"forward1", 256, 1000, 100, false, true},  // h = x w1'
    {"forward2", 256, 10, 1000, false, true},   // o = h w2'
    {"data2", 256, 1000, 10, false, false},     // dh = do w2
    {"weight2", 10, 1000, 256, true, false},    // dw2 = do' h
    {"weight1", 1000, 100, 256, true, false},   // dw1 = dh' x
}};

constexpr std::array<Product, 2> kInferenceProducts = {{
    {"hidden", 1, 1000, 100, false, true},
    {"output", 1, 10, 1000, false, true},
}};

// The transformer block: each dense layer forward, and its gradients for input and weights; then attention,
// where the scores and the weighted sums of values have two gradients each.
constexpr std::array<Product, 18> gpt_products(const gpt_task::Size& size) {
  const int t = size.tokens, d = size.width / size.heads, pairs = size.batch * size.heads;
  const int width = size.width, hidden = size.hidden(), all = size.batch * t;
  return {{
      {"qkv", all, 3 * width, width, false, true},
      {"qkv dx", all, width, 3 * width, false, false},
      {"qkv dw", 3 * width, width, all, true, false},
      {"scores", t, t, d, false, true, pairs},
      {"scores dq", t, d, t, false, false, pairs},
      {"scores dk", t, d, t, true, false, pairs},
      {"mix", t, d, t, false, false, pairs},
      {"mix dp", t, t, d, false, true, pairs},
      {"mix dv", t, d, t, true, false, pairs},
      {"out", all, width, width, false, true},
      {"out dx", all, width, width, false, false},
      {"out dw", width, width, all, true, false},
      {"up", all, hidden, width, false, true},
      {"up dx", all, width, hidden, false, false},
      {"up dw", hidden, width, all, true, false},
      {"down", all, width, hidden, false, true},
      {"down dx", all, hidden, width, false, false},
      {"down dw", width, hidden, all, true, false},
  }};
}
constexpr auto kGptProducts = gpt_products({});

}  // namespace bench
