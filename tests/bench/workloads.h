// Every workload compiled into a plan, optionally without some passes.
#pragma once
#include <espalier/espalier.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gpt_task.h"
#include "mlp_task.h"
#include "pointwise_task.h"

namespace workloads {

struct Frozen {
  espalier::Executor executor;
  std::function<void()> run;  // `steps` steps
  int64_t steps;
};

using Without = std::vector<std::string>;  // names of passes to leave out

/// The configuration of a workload; by default on the CPU with all passes.
struct Target {
  std::vector<espalier::Device> devices = {};
  espalier::Precision precision = espalier::Precision::float32;
  espalier::Launch launch = espalier::Launch::graph;
  Without without = {};
  bool gather_gradients = false;  // side by side, as on replicas
};

Frozen mlp(const Target& target, int64_t rows = task::kRows, int64_t batch = task::kBatch);
Frozen inference(const Target& target);
/// Computes the whole expression and returns one element, so that no copy is timed. On a GPU a run has many
/// steps, each of which reads one further number.
Frozen pointwise_forward(const Target& target, int64_t elements);
/// The gradients of a, b and c are kept in states, as by backward().
Frozen pointwise_backward(const Target& target, int64_t elements);
Frozen gpt(const Target& target, const gpt_task::Size& size = {});
/// The network of the digits sample, on random numbers: small steps.
Frozen small(const Target& target);
/// Adam alone: updates of parameters of these sizes, with gradients in leaves. Each step also trains a
/// number, since a plan needs a loss.
Frozen optimizer(const Target& target, const std::vector<int64_t>& sizes);

// The same on the CPU.
inline Frozen mlp(const Without& without = {}) { return mlp(Target{.without = without}); }
inline Frozen inference(const Without& without = {}) { return inference(Target{.without = without}); }
inline Frozen pointwise_forward(const Without& without = {}, int64_t elements = pointwise_task::kElements) {
  return pointwise_forward(Target{.without = without}, elements);
}
inline Frozen pointwise_backward(const Without& without = {}, int64_t elements = pointwise_task::kElements) {
  return pointwise_backward(Target{.without = without}, elements);
}
inline Frozen gpt(const Without& without = {}) { return gpt(Target{.without = without}); }
inline Frozen small(const Without& without = {}) { return small(Target{.without = without}); }

}  // namespace workloads
