#include "espalier/core/deferred/schedule_cache.h"

namespace espalier {

namespace {

uint64_t hash_of(const std::vector<uint64_t>& words, BatchPolicy policy) {
  uint64_t hash = words.size() * 2 + static_cast<uint64_t>(policy);
  for (const uint64_t word : words) {
    hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
    hash ^= hash >> 29;
  }
  return hash;
}

/// About the memory that a schedule takes.
size_t bytes_of(const Schedule& schedule) {
  size_t bytes = sizeof schedule + schedule.words.size() * sizeof(uint64_t);
  for (const ScheduledBatch& batch : schedule.batches) {
    bytes += sizeof batch + batch.nodes.size() * sizeof(uint32_t);
    for (const ScheduledInput& input : batch.inputs) {
      bytes += sizeof input + input.sources.size() * sizeof(ScheduledSource);
      // A gathering op holds each piece, and the pairs of its rows.
      if (input.stack) bytes += batch.nodes.size() * (sizeof(RowPiece) + 2 * sizeof(int64_t)) + 256;
    }
  }
  return bytes;
}

}  // namespace

ScheduleCache::Entries::iterator ScheduleCache::find(Entries& entries, uint64_t hash,
                                                     const WaitingGraph& graph, BatchPolicy policy) {
  const auto [begin, end] = entries.equal_range(hash);
  for (auto at = begin; at != end; ++at)
    if (at->second.policy == policy && at->second.schedule->words == graph.words()) return at;
  return entries.end();
}

std::shared_ptr<const Schedule> ScheduleCache::schedule_of(const WaitingGraph& graph, BatchPolicy policy,
                                                           bool& known) {
  const uint64_t hash = hash_of(graph.words(), policy);
  known = true;
  if (const auto at = find(recent_, hash, graph, policy); at != recent_.end()) return at->second.schedule;
  if (const auto at = find(older_, hash, graph, policy); at != older_.end()) {
    recent_bytes_ += at->second.bytes;
    return recent_.insert(older_.extract(at))->second.schedule;
  }
  known = false;
  auto schedule = std::make_shared<const Schedule>(make_schedule(graph, kinds, policy));
  const size_t bytes = bytes_of(*schedule);
  recent_bytes_ += bytes;
  return recent_.emplace(hash, Entry{policy, bytes, std::move(schedule)})->second.schedule;
}

void ScheduleCache::forget(const std::shared_ptr<const Schedule>& schedule) {
  const auto is_it = [&](const auto& entry) { return entry.second.schedule == schedule; };
  std::erase_if(recent_, is_it);
  std::erase_if(older_, is_it);
}

void ScheduleCache::make_room() {
  if (kinds.size() > most_kinds) {
    kinds.clear();
    recent_.clear();
    older_.clear();
    recent_bytes_ = 0;
  } else if (recent_bytes_ > most_bytes) {
    older_ = std::exchange(recent_, {});
    recent_bytes_ = 0;
  }
}

ScheduleCache& schedule_cache() {
  static thread_local ScheduleCache cache;
  return cache;
}

}  // namespace espalier
