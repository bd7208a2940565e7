// LoopBody: one step of a scan as a tree over leaves of its own.
#pragma once
#include <memory>
#include <vector>

#include "espalier/core/node.h"
#include "espalier/ops/functions/loop.h"

namespace espalier {

/// Inputs are states, elements of sequences, and what the step uses beside them; outputs are the next states
/// and the outputs of the step.
struct LoopBody {
  size_t states = 0, sequences = 0;
  std::vector<Variable> inputs, outputs;
  std::vector<Node*> nodes = {};  ///< below the outputs, inputs and constants among them, in order

  size_t captured() const { return inputs.size() - states - sequences; }
  size_t results() const { return outputs.size() - states; }
  /// Lists the nodes. Throws UnsupportedError for one that a loop cannot run.
  void finish();
  /// The specs of the outputs for inputs of these.
  std::vector<Spec> infer(const std::vector<Spec>& inputs) const;
};
using LoopBodyPtr = std::shared_ptr<const LoopBody>;

/// The body of a step. `captured` gets the Variables that it uses beside its operands.
LoopBodyPtr trace_step(const ScanStep& step, const std::vector<Variable>& state,
                       const std::vector<Variable>& sequences, std::vector<Variable>& captured);

}  // namespace espalier
