// Networks and training runs for tests of plan files.
#pragma once
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "espalier/executor/load.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/batch_norm.h"
#include "espalier/nn/cells.h"
#include "espalier/nn/container.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/dropout.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/layer_norm.h"
#include "espalier/nn/losses.h"
#include "espalier/nn/pooling.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace espalier::testing {

/// A network over rows of `x`, and what it is trained to give.
struct PlanNetwork {
  std::string name;
  Tensor x;
  std::function<Variable(const Variable&)> outputs;  ///< [rows, 3]
};

inline Tensor reals_of(const Shape& shape, uint64_t which) {
  return numbers(shape, -1, 1, which).to(float32);
}

inline std::vector<PlanNetwork> plan_networks() {
  using namespace nn;
  std::vector<PlanNetwork> all;
  constexpr int64_t rows = 22;
  all.push_back({"mlp", reals_of({rows, 6}, 1),
                 Sequential{Dense(9), Relu(), Dropout(0.3), LayerNorm(), Dense(7), Tanh(), Dense(3)}});
  all.push_back(
      {"convolutions", reals_of({rows, 1, 8, 8}, 2),
       Sequential{Conv2d(4, {.kernel = 3, .padding = 1}), BatchNorm(), Relu(), MaxPool2d({.kernel = 2}),
                  Conv2d(5, {.kernel = 3}), BatchNorm(), Gelu(), Flatten(), Dropout(0.2), Dense(3)}});
  const auto words = (abs(Variable(reals_of({rows, 5}, 3))) * 10.0).value().to(int64);
  all.push_back({"recurrent cells", words,
                 [table = Embedding(11, 4), lstm = LSTMCell(4, 6), gru = GRUCell(6, 5),
                  out = Dense(3)](const Variable& x) mutable {
                   const auto word = [&](int64_t t) { return table(reshape(slice(x, 1, t, t + 1), {-1})); };
                   LSTMState state = lstm(word(0));
                   Variable h = gru(state.h);
                   for (int64_t t = 1; t < 5; ++t) {
                     state = lstm(word(t), state);
                     h = gru(state.h, h);
                   }
                   return out(h);
                 }});
  return all;
}

}  // namespace espalier::testing
