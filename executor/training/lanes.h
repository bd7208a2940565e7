// Lanes: what threads need to run one inference executor at the same time.
#pragma once
#include <atomic>
#include <memory>

#include "espalier/executor/training/plan_cache.h"
#include "espalier/executor/training/tree_value.h"

namespace espalier {

/// A session of its own, with the plans bound to its memory. The leaves are those of all lanes.
struct Lane {
  Lane(const Setup& setup, const Job& job, CompiledPlans& compiled, std::unique_ptr<Replicas> own);

  std::unique_ptr<Replicas> devices;
  PlanCache plans;
  TreeValue value;
  std::atomic<bool> taken{true};
  Lane* next = nullptr;
};

/// As many lanes as threads have been inside at the same time.
class Lanes {
 public:
  Lanes() = default;
  ~Lanes();
  Lanes(const Lanes&) = delete;
  Lanes& operator=(const Lanes&) = delete;

  /// A lane that no thread has taken, or null.
  Lane* take() noexcept;
  /// Adds a lane that has been made taken.
  Lane* add(std::unique_ptr<Lane> lane) noexcept;
  static void give_back(Lane* lane) noexcept { lane->taken.store(false, std::memory_order_release); }

 private:
  std::atomic<Lane*> first_{nullptr};
};

}  // namespace espalier
