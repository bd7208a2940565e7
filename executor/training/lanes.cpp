#include "espalier/executor/training/lanes.h"

namespace espalier {

Lane::Lane(const Setup& setup, const Job& job, CompiledPlans& compiled, std::unique_ptr<Replicas> own)
    : devices(std::move(own)), plans(setup, *devices, compiled), value(setup, job) {
  devices->first().kept.share(compiled.kept());
}

Lanes::~Lanes() {
  for (Lane* lane = first_.load(); lane;) {
    Lane* const next = lane->next;
    delete lane;
    lane = next;
  }
}

Lane* Lanes::take() noexcept {
  for (Lane* lane = first_.load(std::memory_order_acquire); lane; lane = lane->next)
    if (!lane->taken.load(std::memory_order_relaxed) &&
        !lane->taken.exchange(true, std::memory_order_acquire))
      return lane;
  return nullptr;
}

Lane* Lanes::add(std::unique_ptr<Lane> lane) noexcept {
  Lane* const added = lane.release();
  added->next = first_.load(std::memory_order_relaxed);
  while (!first_.compare_exchange_weak(added->next, added, std::memory_order_release,
                                       std::memory_order_relaxed)) {
  }
  return added;
}

}  // namespace espalier
