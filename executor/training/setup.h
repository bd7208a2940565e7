// Setup: the step that a tree and options ask for, checked, before anything is compiled.
#pragma once
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "espalier/executor/compile.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/sharding/state_owners.h"
#include "espalier/executor/training/epoch_figure.h"
#include "espalier/executor/training/loss_scale.h"
#include "espalier/executor/training/tree_feeds.h"

namespace espalier {

/// The devices that plans are made for. They need not be present.
struct Target {
  DeviceType device = DeviceType::cpu;
  int replicas = 1;       ///< of all processes together
  bool overlaps = false;  ///< whether replicas can communicate while they compute
};

/// Whether a training step of the tree and these outputs writes states by with_assignment().
bool assigns_states(const Variable& root, const std::vector<std::pair<std::string, PlanOutput>>& outputs);

/// The updates of a step that were built before, and what they are made of.
struct BuiltStep {
  std::vector<Variable> updates;
  std::vector<std::pair<Variable, Variable>> gradients;  ///< parameters and their gradients
  Variable succeeded = {};                               ///< see StepTree
  std::optional<LossScale> loss_scale = {};
};

/// What a step computes, reads and writes, and the options that say how.
struct Setup {
  /// Checks the options and finds the feeds, leaves and updates of the tree. Throws what get_executor throws.
  /// `gather_gradients`: the gradients of all parameters lie side by side even if nothing exchanges them.
  /// `built`: training takes these updates, and not those of an optimizer or of the tree.
  Setup(const Variable& root, const ExecutorOptions& options, bool gather_gradients = false,
        const BuiltStep* built = nullptr);
  /// Adds what plans for these devices need beside that: where each computes some of the rows of a batch, a
  /// real scalar to sum up as the loss, the gradients to exchange, and the owners of states.
  void prepare_for(const Target& target);

  bool training() const { return *options.mode == Mode::training; }
  /// Whether each plan computes only some of the rows of a batch.
  bool sharded() const { return target.replicas > 1 || options.accumulate > 1; }
  /// Whether the gradients of all parameters lie side by side.
  bool gathers_gradients(bool inference) const {
    return !inference && training() && (gather_gradients || sharded());
  }
  /// In how many micro-batches a replica takes its rows.
  int micro_batches(bool inference) const { return inference || !training() ? 1 : options.accumulate; }
  /// The updates of a step of training, and the gradients of all parameters that they change.
  BuiltStep built_step() const;
  /// The leaves in the order in which they lie in memory: parameters, then the states of each kind.
  std::vector<Variable> arranged_leaves() const;

  Variable root;
  ExecutorOptions options;  ///< `mode` is set
  bool gather_gradients;
  StepTree tree;
  std::optional<LossScale> loss_scale;  ///< training in float16
  std::vector<size_t> first_outputs;    ///< where the variables of each output begin in `tree.outputs`
  std::vector<EpochFigure> figures;     ///< of the outputs that epochs have a figure of, in their order
  TreeFeeds feeds;
  std::vector<Variable> leaves;      ///< all but constants, in the order in which they were written
  std::set<const Node*> written;     ///< those of them that a step writes
  const Node* collective = nullptr;  ///< a node of the tree that communicates, if there is one
  Device home;                       ///< the device of the first leaf
  Target target;
  std::shared_ptr<const StateOwners> owners;  ///< if replicas share out the states
};

/// Compiles the plan that takes this shard of batches of these sizes. Throws UnsupportedError if shards of
/// such batches cannot be computed apart.
std::shared_ptr<const PlanData> compile_step(const Setup& setup, const BatchSignature& batch,
                                             BatchShard shard, bool inference);

}  // namespace espalier
