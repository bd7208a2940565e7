// LoopBody: one step of a scan as a tree over leaves of its own.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <source_location>
#include <vector>

#include "espalier/core/node.h"
#include "espalier/ops/functions/loop.h"

namespace espalier {

/// Inputs are states, elements of sequences, and what the step uses beside them; outputs are the next states
/// and the outputs of the step. If it draws random numbers, its last input says where each step draws them
/// (scan_draws.h): the gradient of a loop draws the same ones again.
struct LoopBody {
  /// Loops may be nested so deeply, and have so many nodes together with those of the loops in them.
  static constexpr int64_t deepest = 16, largest = int64_t{1} << 20;
  /// So many loops may be made one of the other, inside each other or as gradients.
  static constexpr int64_t most_levels = 256;

  size_t states = 0, sequences = 0;
  std::vector<Variable> inputs, outputs;
  std::vector<Node*> nodes = {};  ///< below the outputs, inputs and constants among them, in order
  int64_t number = 0;             ///< of its own: equal numbers are one body
  int64_t depth = 1, size = 0;    ///< of loops in each other; nodes, with those of the loops
  int64_t levels = 1;             ///< of loops that are made one of the other
  /// The numbers of the random nodes, of so many in the step that was written down.
  std::map<const Node*, size_t> draws = {};
  size_t random_nodes = 0;
  bool backwards = false;  ///< the steps come in the other order than when they drew
  /// What errors call the step of the first element; and if each step is a segment of a longer loop, the
  /// number of steps in it, else 0.
  int64_t first_step = 0, segment = 0;
  /// The loop of whose gradient this is the step; its first sequences are the states of that loop.
  std::shared_ptr<const LoopBody> gradient_of = {};

  LoopBody() = default;
  LoopBody(const LoopBody&) = delete;
  LoopBody& operator=(const LoopBody&) = delete;

  size_t captured() const { return inputs.size() - states - sequences; }
  size_t results() const { return outputs.size() - states; }
  /// Lists the nodes, and numbers random ones that have no number. Throws UnsupportedError for one that a
  /// loop cannot run, and for too many.
  void finish();
  /// What the last input is, if the step draws.
  Spec draws_spec() const { return {DType::int64, {static_cast<int64_t>(3 + random_nodes)}}; }
  /// The specs for a step, from those of the loop, of which the last may be missing. Throws ShapeError.
  std::vector<Spec> of_step(const InputSpecs& loop) const;
  /// The specs of the outputs for inputs of these. Throws ShapeError or TypeError for a state that changes
  /// its spec, and what inference throws.
  std::vector<Spec> infer(const std::vector<Spec>& inputs) const;
  /// The specs of the outputs of each node, for inputs of these.
  std::vector<Specs> specs_of_nodes(const std::vector<Spec>& inputs) const;
  /// The streams of a step before each random node, and behind the last one those of a whole step.
  std::vector<int64_t> streams(const std::vector<Spec>& inputs) const;
  /// The body where nothing is trained; null: this one.
  const std::shared_ptr<const LoopBody>& for_inference() const;

 private:
  std::shared_ptr<LoopBody> written_for_inference() const;
  mutable std::once_flag has_calm_;
  mutable std::shared_ptr<const LoopBody> calm_;
};
using LoopBodyPtr = std::shared_ptr<const LoopBody>;

/// The body of a step of a scan that was called at `where`, the site of its CallScope. `captured` gets the
/// Variables that it uses beside its operands. Nodes carry the lines in the step, unless a library function
/// has called the scan.
std::shared_ptr<LoopBody> trace_step(const ScanStep& step, const std::vector<Variable>& state,
                                     const std::vector<Variable>& sequences, std::vector<Variable>& captured,
                                     const CallSite& where);

}  // namespace espalier
