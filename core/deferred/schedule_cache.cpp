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

}  // namespace

const Schedule& ScheduleCache::schedule_of(const WaitingGraph& graph, BatchPolicy policy, bool& known) {
  const uint64_t hash = hash_of(graph.words(), policy);
  const auto [begin, end] = entries_.equal_range(hash);
  for (auto at = begin; at != end; ++at)
    if (at->second->policy == policy && at->second->schedule.words == graph.words()) {
      known = true;
      return at->second->schedule;
    }
  known = false;
  words_ += graph.words().size();
  auto entry = std::make_unique<Entry>(policy, make_schedule(graph, kinds, policy));
  return entries_.emplace(hash, std::move(entry))->second->schedule;
}

void ScheduleCache::forget(const Schedule& schedule) {
  words_ -= schedule.words.size();
  std::erase_if(entries_, [&](const auto& entry) { return &entry.second->schedule == &schedule; });
}

void ScheduleCache::make_room() {
  if (kinds.size() > most_kinds) {
    kinds.clear();
    entries_.clear();
    words_ = 0;
  } else if (words_ > most_words) {
    entries_.clear();
    words_ = 0;
  }
}

ScheduleCache& schedule_cache() {
  static thread_local ScheduleCache cache;
  return cache;
}

}  // namespace espalier
