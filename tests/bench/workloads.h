// Every workload frozen into a plan: what the programs time, and what passes.cpp freezes with passes left
// out.
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

/// Where and how a workload runs; as it stands, on the CPU and with all passes.
struct Target {
  std::vector<espalier::Device> devices = {};
  espalier::Precision precision = espalier::Precision::float32;
  espalier::Launch launch = espalier::Launch::graph;
  Without without = {};
  bool gather_gradients = false;  // side by side, as on replicas
};

Frozen mlp(const Target& target, int64_t rows = task::kRows, int64_t batch = task::kBatch);
Frozen inference(const Target& target);
/// All of the expression is computed; what a run hands out is one element, so that no copy is timed. On a GPU
/// a run has many steps, of which each reads a number more.
Frozen pointwise_forward(const Target& target, int64_t elements);
/// The gradients of a, b and c stay in states, as backward() would leave them.
Frozen pointwise_backward(const Target& target, int64_t elements);
Frozen gpt(const Target& target, const gpt_task::Size& size = {});
/// What the digits sample trains, on random numbers: steps that are small.
Frozen small(const Target& target);
/// Adam alone: parameters of these sizes, whose gradients lie beside them. Each step trains a number, too, so
/// that there is a loss.
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
