// What a plan is made of, before it is bound to memory.
#pragma once
#include <optional>

#include "espalier/executor/graph/step_graph.h"
#include "espalier/executor/plan/memory.h"
#include "espalier/executor/plan/pass_report.h"
#include "espalier/executor/sharding/replication.h"

namespace espalier {

/// The graph of a step, and where its values lie.
struct PlanData : StepGraph {
  MemoryPlan memory;
  std::vector<PassReport> passes;
  /// If the plan is one of several replicas, or takes a batch in several micro-batches.
  std::optional<Replication> replication;
  /// On a GPU: how the kernels are launched, once a runtime knows.
  mutable std::string launch;

  /// The owners of states, if replicas share these out; else null.
  const StateOwners* owners() const { return replication ? replication->owners.get() : nullptr; }
};

}  // namespace espalier
