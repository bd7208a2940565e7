// LoopBody: one step of a scan as a tree over leaves of its own.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "espalier/core/node.h"
#include "espalier/ops/functions/loop.h"

namespace espalier {

/// Inputs are states, elements of sequences, and what the step uses beside them; outputs are the next states
/// and the outputs of the step.
struct LoopBody {
  /// Loops may be nested so deeply, and have so many nodes together with those of the loops in them.
  static constexpr int64_t deepest = 16, largest = int64_t{1} << 20;

  size_t states = 0, sequences = 0;
  std::vector<Variable> inputs, outputs;
  std::vector<Node*> nodes = {};  ///< below the outputs, inputs and constants among them, in order
  int64_t number = 0;             ///< of its own: equal numbers are one body
  int64_t depth = 1, size = 0;    ///< of loops in each other; nodes, with those of the loops

  size_t captured() const { return inputs.size() - states - sequences; }
  size_t results() const { return outputs.size() - states; }
  /// Lists the nodes. Throws UnsupportedError for one that a loop cannot run, and for too many.
  void finish();
  /// The specs of the outputs for inputs of these. Throws ShapeError or TypeError for a state that changes
  /// its spec, and what inference throws.
  std::vector<Spec> infer(const std::vector<Spec>& inputs) const;
};
using LoopBodyPtr = std::shared_ptr<const LoopBody>;

/// The body of a step. `captured` gets the Variables that it uses beside its operands.
LoopBodyPtr trace_step(const ScanStep& step, const std::vector<Variable>& state,
                       const std::vector<Variable>& sequences, std::vector<Variable>& captured);

}  // namespace espalier
