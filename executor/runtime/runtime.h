// Runtime: a plan bound to memory, as a list of calls. Each kind of device runs the list its own way.
#pragma once
#include <chrono>

#include "espalier/core/bind_context.h"
#include "espalier/core/feed.h"
#include "espalier/core/kept_values.h"
#include "espalier/core/workspace.h"
#include "espalier/executor/plan/plan_data.h"
#include "espalier/executor/runtime/nan_finder.h"
#include "espalier/executor/runtime/parameter_arena.h"
#include "espalier/executor/sharding/batch_shard.h"
#include "espalier/executor/sharding/bucket_kernels.h"

namespace espalier {

class Session;

/// Runs one plan. Steps allocate nothing of their own.
class Runtime {
 public:
  using KernelTimestamps = std::vector<std::chrono::steady_clock::time_point>;

  virtual ~Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Copies a batch into the sources of a feed.
  virtual void load(const Feed& feed, std::span<const Tensor> batch) = 0;
  /// The same for a feed whose columns are on the device already; false if they are not. `shown` is the feed
  /// as the plan sees it.
  virtual bool show(const Feed& /*feed*/, const Feed& /*shown*/, int64_t /*epoch*/, int64_t /*step*/) {
    return false;
  }
  /// Makes what a step would make and keep for later ones, as far as that is possible beforehand. The leaves
  /// have their values.
  virtual void prepare() {}
  /// One step. Random nodes draw from the streams that follow `first_stream`, as the graph has numbered them.
  /// `timestamps`, if given, takes the time before the first kernel and after each.
  virtual void run(uint64_t first_stream, KernelTimestamps* timestamps = nullptr) = 0;

  const std::shared_ptr<const PlanData>& plan() const { return plan_; }
  int64_t random_nodes() const { return plan_->graph.streams; }
  /// Results, in the plan's memory: valid until the next step.
  const Tensor& loss() const { return *results_[plan_->loss]; }
  const Tensor& value() const { return *results_[plan_->value]; }
  const Tensor& result(size_t position) const { return *results_[position]; }
  const Tensor& value_in_reals() const { return *results_[plan_->value_in_reals.value()]; }
  /// The leaves that a step writes, here or where replicas own them, by their slots in the arena.
  std::span<const size_t> assigned() const { return assigned_; }

 protected:
  /// The session's arena is shared by plans of which one runs at a time; it is replaced if it is too small.
  Runtime(std::shared_ptr<const PlanData> plan, Session& session, BatchShard shard);

  struct Source {
    const Op* op;
    Tensor* value;
  };
  struct Call {
    const Op* op;
    KernelCall kernel;
    std::unique_ptr<BoundKernel> bound = nullptr;
    const CallSite* where;
    uint32_t node;         ///< of the graph
    bool of_leaves;        ///< all that it computes is made of leaves
    InputSet leaf_inputs;  ///< the inputs that are
  };
  /// Gives a call its kernel.
  void bind(Call& call);
  /// Calls `f(value, tensor)` for each column of a feed that the plan reads.
  template <class F>
  void each_source(const Feed& feed, F&& f) {
    for (Source& source : sources_)
      if (source.op->feed()->get() == &feed) f(source.op->feed_output(), *source.value);
  }
  /// Throws DataError unless a batch's column is what the plan was made for.
  static void check_column(const Feed& feed, const Tensor& from, const Tensor& value);

  /// Has the system give the arena its memory, and keeps what is in it. On a CPU.
  void touch_arena();

  std::vector<Call> calls_;
  std::unique_ptr<NanFinder> nan_finder_;  // null unless the plan has it

 private:
  Workspace workspace_of(uint32_t node) const;
  KeptInputs kept_inputs_of(uint32_t node) const;

  std::shared_ptr<const PlanData> plan_;
  std::optional<ReplicaServices> replica_;
  Workspace workspace_;  // of the call that is being bound
  KeptInputs kept_;      // of that call
  BindContext context_;
  Tensor arena_;
  std::vector<SmallVector<Tensor, 1>> values_;  // for each node, for each output
  std::vector<Source> sources_;
  std::vector<const Tensor*> results_;
  std::vector<size_t> assigned_;
};

}  // namespace espalier
