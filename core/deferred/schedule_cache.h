// The schedules of a thread, by the structure of what they compute.
#pragma once
#include <unordered_map>

#include "espalier/core/deferred/schedule.h"

namespace espalier {

/// Those that came last stay: when they have taken `most_bytes`, they become the older ones, and what was
/// older goes unless it comes again.
struct ScheduleCache {
  NodeKinds kinds;

  /// The schedule of that structure; `known` says whether there was one.
  std::shared_ptr<const Schedule> schedule_of(const WaitingGraph& graph, BatchPolicy policy, bool& known);
  /// Drops a schedule that another one will replace.
  void forget(const std::shared_ptr<const Schedule>& schedule);
  /// Drops what is too much. No schedule may be running.
  void make_room();

 private:
  static constexpr size_t most_kinds = size_t{1} << 14;
  static constexpr size_t most_bytes = size_t{8} << 20;
  struct Entry {
    BatchPolicy policy = {};
    size_t bytes = 0;
    std::shared_ptr<const Schedule> schedule = nullptr;
  };
  using Entries = std::unordered_multimap<uint64_t, Entry>;
  static Entries::iterator find(Entries& entries, uint64_t hash, const WaitingGraph& graph,
                                BatchPolicy policy);

  Entries recent_, older_;
  Entry latest_;  // is compared first, without a hash
  size_t recent_bytes_ = 0;
};
ScheduleCache& schedule_cache();

void set_last_evaluation(EvaluationReport report);

}  // namespace espalier
