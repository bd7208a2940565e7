#include "espalier/core/deferred/schedule_cache.h"

namespace espalier {

namespace {

/// About the memory that a schedule takes.
size_t bytes_of(const Schedule& schedule) {
  const WaitingStructure& structure = schedule.structure;
  size_t bytes = sizeof schedule + structure.kinds.size() * sizeof(uint32_t) +
                 structure.uses.size() * sizeof(WaitingUse) + structure.row_counts.size() * sizeof(int64_t);
  for (const ScheduledBatch& batch : schedule.batches) {
    bytes += sizeof batch +
             (batch.nodes.size() + batch.starts.size() + 2 * batch.copies.size()) * sizeof(uint32_t);
    for (const ScheduledInput& input : batch.inputs) {
      bytes += sizeof input + input.sources.size() * sizeof(ScheduledSource);
      // A gathering op holds each piece, and the pairs of its rows.
      const size_t pieces = batch.starts.empty() ? batch.nodes.size() : batch.starts.back();
      if (input.stack)
        bytes += pieces * static_cast<size_t>(std::max<int64_t>(1, input.rows_of_one)) *
                     (sizeof(RowPiece) + 2 * sizeof(int64_t)) +
                 256;
    }
  }
  return bytes;
}

}  // namespace

ScheduleCache::Entries::iterator ScheduleCache::find(Entries& entries, uint64_t hash,
                                                     const WaitingGraph& graph, BatchPolicy policy) {
  const auto [begin, end] = entries.equal_range(hash);
  for (auto at = begin; at != end; ++at)
    if (at->second.policy == policy && at->second.schedule->structure == graph.structure()) return at;
  return entries.end();
}

std::shared_ptr<const Schedule> ScheduleCache::schedule_of(const WaitingGraph& graph, BatchPolicy policy,
                                                           bool& known) {
  known = true;
  if (latest_.schedule && latest_.policy == policy && latest_.schedule->structure == graph.structure())
    return latest_.schedule;
  const uint64_t hash = graph.structure().hash() + static_cast<uint64_t>(policy);
  auto at = find(recent_, hash, graph, policy);
  if (at == recent_.end()) {
    if (const auto old = find(older_, hash, graph, policy); old != older_.end()) {
      at = recent_.insert(older_.extract(old));
    } else {
      known = false;
      auto schedule = std::make_shared<const Schedule>(make_schedule(graph, kinds, policy));
      const size_t bytes = bytes_of(*schedule);
      at = recent_.emplace(hash, Entry{policy, bytes, std::move(schedule)});
    }
    recent_bytes_ += at->second.bytes;
  }
  latest_ = at->second;
  return latest_.schedule;
}

void ScheduleCache::forget(const std::shared_ptr<const Schedule>& schedule) {
  const auto is_it = [&](const auto& entry) { return entry.second.schedule == schedule; };
  std::erase_if(recent_, is_it);
  std::erase_if(older_, is_it);
  latest_ = {};
}

void ScheduleCache::make_room() {
  if (kinds.size() > most_kinds) {
    *this = {};
  } else if (recent_bytes_ > most_bytes) {
    older_ = std::exchange(recent_, {});
    recent_bytes_ = 0;
    latest_ = {};
  }
}

ScheduleCache& schedule_cache() {
  static thread_local ScheduleCache cache;
  return cache;
}

}  // namespace espalier
