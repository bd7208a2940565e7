// What a plan is made of, before it is bound to memory.
#pragma once
#include <optional>

#include "espalier/executor/memory.h"
#include "espalier/executor/plan.h"
#include "espalier/executor/precision.h"
#include "espalier/executor/replication.h"
#include "espalier/executor/state_owners.h"

namespace espalier {

struct PlanData {
  Graph graph;
  MemoryPlan memory;
  std::vector<PassReport> passes;
  /// If the plan is one of several replicas.
  std::optional<Replication> replication;
  /// If replicas share out the states; and which of them has this plan.
  std::shared_ptr<const StateOwners> owners;
  int replica = 0;
  /// On a GPU: how the kernels are launched, once a runtime knows.
  mutable std::string launch;
};

/// For a plan that is one of several replicas.
struct ReplicaOptions {
  int replicas = 1, parts = 1;       ///< see Replication
  int64_t rows = 0, batch_rows = 0;  ///< of this one, and of all together
  bool gathers = false;              ///< it is not the last part: it leaves gradients, and updates nothing
  int64_t bucket_bytes = 0;          ///< at least; 0: all in one message
  bool local_statistics = false;
  /// Other sizes of batches, to find out what depends on the rows, and how many rows these have.
  FeedRows other = {};
  int64_t other_rows = 0;
  /// If states are shared out; and which replica this is.
  std::shared_ptr<const StateOwners> owners = {};
  int replica = 0;
};

struct CompileOptions {
  bool inference = false;
  DeviceType device = DeviceType::cpu;  ///< that will run it
  std::vector<std::string> without;     ///< passes to leave out
  bool dump = false;
  int64_t memory_budget = 0;  ///< bytes; 0: any
  /// Parameters and their gradients, which are then put side by side. Empty: they lie wherever there is room.
  std::vector<std::pair<Variable, Variable>> gradient_bucket = {};
  Precision precision = Precision::float32;
  /// The first result is then the loss: a scalar.
  std::optional<ReplicaOptions> replica = {};
};

/// Runs the passes over the tree below `results` and `updates`. Throws OutOfMemory if the budget cannot be
/// kept.
std::shared_ptr<const PlanData> compile(const std::vector<Variable>& results,
                                        const std::vector<Variable>& updates, const FeedRows& rows,
                                        const CompileOptions& options);

/// The names of all passes, in their order.
std::vector<std::string> pass_names();

}  // namespace espalier
