// Runtime: a plan bound to memory, as a list of calls. Each kind of device runs the list its own way.
#pragma once
#include <chrono>

#include "espalier/data/share.h"
#include "espalier/executor/leaf_arena.h"
#include "espalier/executor/plan_data.h"

namespace espalier {

class Session;

/// Runs one plan. Steps allocate nothing of their own.
class Runtime {
 public:
  using Laps = std::vector<std::chrono::steady_clock::time_point>;

  virtual ~Runtime() = default;
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;

  /// Copies a batch into the sources of a feed.
  virtual void load(const Feed& feed, std::span<const Tensor> batch) = 0;
  /// The same for a feed whose columns are on the device already; false if they are not. `share` shows what
  /// the plan sees of the feed's batches.
  virtual bool show(const Feed& /*feed*/, const Feed& /*share*/, int64_t /*epoch*/, int64_t /*step*/) {
    return false;
  }
  /// One step. Random nodes draw from the streams that follow `first_stream`, as the graph has numbered them.
  /// `laps`, if given, takes the time before the first kernel and after each.
  virtual void run(uint64_t first_stream, Laps* laps = nullptr) = 0;

  const std::shared_ptr<const PlanData>& plan() const { return plan_; }
  int64_t random_nodes() const { return plan_->graph.streams; }
  /// A result, in the plan's memory: valid until the next step.
  const Tensor& result(size_t i) const { return *results_[i]; }
  /// The leaves that a step writes, here or where replicas own them, by their slots in the arena.
  std::span<const size_t> assigned() const { return assigned_; }

 protected:
  /// The session's arena is shared by plans of which one runs at a time; it is replaced if it is too small.
  Runtime(std::shared_ptr<const PlanData> plan, Session& session, data::RowShare share);

  struct Source {
    const Op* op;
    Tensor* value;
  };
  struct Call {
    const Op* op;
    KernelCall kernel;
    std::unique_ptr<BoundKernel> bound = nullptr;
    const std::source_location* where;
    uint32_t node;  ///< of the graph
  };
  /// Whether the call is where replicas exchange.
  bool exchanges(const Call& call) const;
  /// Its kernel; `copy` is that of a bucket itself.
  std::unique_ptr<BoundKernel> bind_exchange(const Call& call, std::unique_ptr<BoundKernel> copy,
                                             Session& session) const;
  /// Calls `f(value, tensor)` for each column of a feed that the plan reads.
  template <class F>
  void each_source(const Feed& feed, F&& f) {
    for (Source& source : sources_)
      if (source.op->feed()->get() == &feed) f(source.op->feed_output(), *source.value);
  }
  /// Throws DataError unless a batch's column is what the plan was made for.
  static void check_column(const Feed& feed, const Tensor& from, const Tensor& value);

  std::vector<Call> calls_;

 private:
  std::shared_ptr<const PlanData> plan_;
  data::RowShare share_;
  Tensor arena_;
  std::vector<std::vector<Tensor>> values_;  // for each node, for each output
  std::vector<Source> sources_;
  std::vector<const Tensor*> results_;
  std::vector<size_t> assigned_;
};

}  // namespace espalier
