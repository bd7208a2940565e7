// The network of the tests of sharded states.
#pragma once
#include "replica_programs.h"

namespace espalier::testing {

/// Layers in float32, which float16 training requires.
struct Layers {
  explicit Layers(int64_t width = 8, int count = 5)
      : feed({testing::numbers({21, width}, -1, 1, 4).to(float32), labels(width)}, {.batch_size = 6}) {
    const auto [x, y] = feed.get_output_graphs<2>();
    Variable h = x;
    for (int i = 0; i < count; ++i) {
      parameters.push_back(parameter(
          testing::numbers({width, width}, -0.5, 0.5, static_cast<uint64_t>(10 + i)).to(float32), "w"));
      h = tanh(matmul(h, parameters.back()));
    }
    loss = softmax_cross_entropy(h, y);
  }
  static Tensor labels(int64_t width) {
    Tensor labels({21}, int64);
    for (int64_t i = 0; i < 21; ++i) labels.span<int64_t>()[static_cast<size_t>(i)] = i * 7 % width;
    return labels;
  }
  Trace values() const {
    Trace trace;
    for (const Variable& p : parameters) trace.push_back(p.value().clone());
    return trace;
  }
  /// The optimizer's states of all parameters.
  Trace states(const optim::Optimizer& optimizer) const {
    Trace trace;
    for (const Variable& p : parameters)
      for (const auto& [name, state] : optimizer.state_of(p)) trace.push_back(state.value().clone());
    return trace;
  }

  data::Distributor feed;
  std::vector<Variable> parameters;
  Variable loss;
};

}  // namespace espalier::testing
