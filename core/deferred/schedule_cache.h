// The schedules of a thread, by the structure of what they compute.
#pragma once
#include <list>
#include <unordered_map>

#include "espalier/core/deferred/schedule.h"

namespace espalier {

struct ScheduleCache {
  NodeKinds kinds;

  /// The schedule of that structure; `known` says whether there was one.
  const Schedule& schedule_of(const WaitingGraph& graph, BatchPolicy policy, bool& known);
  /// Drops a schedule that another one will replace.
  void forget(const Schedule& schedule);
  /// Drops all when they have become many.
  void make_room();

 private:
  static constexpr size_t most_kinds = size_t{1} << 14;
  static constexpr size_t most_words = size_t{1} << 20;  ///< of all schedules together
  struct Entry {
    BatchPolicy policy;
    Schedule schedule;
  };
  std::unordered_multimap<uint64_t, std::unique_ptr<Entry>> entries_;
  size_t words_ = 0;
};
ScheduleCache& schedule_cache();

void set_last_evaluation(EvaluationReport report);

}  // namespace espalier
