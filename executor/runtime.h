// The CPU runtime: a plan bound to memory, as a list of calls.
#pragma once
#include <chrono>

#include "espalier/executor/plan_data.h"

namespace espalier {

/// Parameters and states of one executor in one contiguous buffer, which all its plans share.
class LeafArena {
 public:
  /// Adds a leaf, once. All are added before the first `bind`.
  void add(const Variable& leaf);
  /// Makes every leaf's value a view of the arena. A leaf that was given another value since is copied in.
  void bind();
  /// Gives every leaf a value of its own again.
  void unbind();
  /// The leaf's tensor in the arena.
  const Tensor& tensor(const Variable& leaf) const;
  /// Tells the tree that these leaves have been written.
  void mark_assigned(const std::vector<Variable>& leaves) const;

 private:
  struct Slot {
    Variable leaf;
    Tensor tensor;
  };
  std::vector<Slot> slots_;
  std::map<const Node*, size_t> index_;
  bool allocated_ = false;
};

/// Runs one plan on the CPU. Steps allocate nothing of their own.
class Runtime {
 public:
  using Laps = std::vector<std::chrono::steady_clock::time_point>;

  /// `arena` is shared by plans of which one runs at a time; it is replaced if it is too small.
  Runtime(std::shared_ptr<const PlanData> plan, const LeafArena& leaves, Tensor& arena);

  /// Copies a batch into the sources of a feed.
  void load(const Feed& feed, std::span<const Tensor> batch);
  /// One step. Random nodes draw from the streams that follow `first_stream`, as the graph has numbered them.
  /// `laps`, if given, takes the time before the first kernel and after each.
  void run(uint64_t first_stream, Laps* laps = nullptr);
  const std::shared_ptr<const PlanData>& plan() const { return plan_; }
  int64_t random_nodes() const { return plan_->graph.streams; }
  /// A result, in the plan's memory: valid until the next step.
  const Tensor& result(size_t i) const { return *results_[i]; }
  const std::vector<Variable>& assigned() const { return assigned_; }

 private:
  template <bool timed>
  void run_calls(uint64_t first_stream, Laps* laps);

  struct Call {
    const Op* op;
    KernelCall kernel;
    std::unique_ptr<BoundKernel> bound = nullptr;
    int64_t random = -1;
    const std::source_location* where;
  };

  std::shared_ptr<const PlanData> plan_;
  Tensor arena_;
  std::vector<std::vector<Tensor>> values_;  // for each node, for each output
  std::vector<Call> calls_;
  std::vector<std::pair<const GraphNode*, Tensor*>> sources_;
  std::vector<const Tensor*> results_;
  std::vector<Variable> assigned_;
};

}  // namespace espalier
