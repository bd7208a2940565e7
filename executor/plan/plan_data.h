// What a plan is made of, before it is bound to memory.
#pragma once
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "espalier/executor/graph/step_graph.h"
#include "espalier/executor/plan/memory.h"
#include "espalier/executor/plan/nan_search.h"
#include "espalier/executor/plan/pass_report.h"
#include "espalier/executor/sharding/replication.h"

namespace espalier {

/// How the kernels of a plan are launched, as a text. Several threads may run one plan.
class LaunchNote {
 public:
  LaunchNote() = default;
  LaunchNote(const LaunchNote& other) : text_(other.get()) {}
  LaunchNote& operator=(const LaunchNote& other) {
    set(other.get());
    return *this;
  }
  void set(std::string text) {
    const std::scoped_lock lock(mutex_);
    text_ = std::move(text);
  }
  std::string get() const {
    const std::scoped_lock lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

/// The graph of a step, and where its values lie.
struct PlanData : StepGraph {
  MemoryPlan memory;
  std::vector<PassReport> passes;
  /// If the plan is one of several replicas, or takes a batch in several micro-batches.
  std::optional<Replication> replication;
  NanSearch find_nan = NanSearch::off;
  /// It writes no leaf and may take memory of its own, for what its kernels make of leaves alone.
  bool keeps_leaves = false;
  /// On a GPU: how the kernels are launched, once a runtime knows.
  mutable LaunchNote launch;

  /// The owners of states, if replicas share these out; else null.
  const StateOwners* owners() const { return replication ? replication->owners.get() : nullptr; }
};

}  // namespace espalier
