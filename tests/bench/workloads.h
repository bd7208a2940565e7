// Every workload frozen into a plan: what the programs time, and what passes.cpp freezes with passes left
// out.
#pragma once
#include <espalier/espalier.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace workloads {

struct Frozen {
  espalier::Executor executor;
  std::function<void()> run;  // `steps` steps
  int64_t steps;
};

using Without = std::vector<std::string>;  // names of passes to leave out

Frozen mlp(const Without& without = {});
Frozen inference(const Without& without = {});
/// All of the expression is computed; what a run hands out is one element, so that no copy is timed.
Frozen pointwise_forward(const Without& without = {}, int64_t elements = 0);
/// The gradients of a, b and c stay in states, as backward() would leave them.
Frozen pointwise_backward(const Without& without = {}, int64_t elements = 0);
Frozen gpt(const Without& without = {});
/// What the digits sample trains, on random numbers: steps that are small.
Frozen small(const Without& without = {});

}  // namespace workloads
