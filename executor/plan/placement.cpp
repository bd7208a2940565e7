#include "espalier/executor/plan/placement.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "espalier/core/error.h"

namespace espalier {

namespace {

struct Range {
  int64_t begin, end;
};

/// A set of offsets, as ranges that do not touch each other.
class RangeSet {
 public:
  using Iterator = std::map<int64_t, int64_t>::const_iterator;

  void add(Range range) {
    auto at = ranges_.upper_bound(range.begin);
    if (at != ranges_.begin() && std::prev(at)->second >= range.begin) --at;
    while (at != ranges_.end() && at->first <= range.end) {
      range.begin = std::min(range.begin, at->first);
      range.end = std::max(range.end, at->second);
      at = ranges_.erase(at);
    }
    ranges_.emplace_hint(at, range.begin, range.end);
  }
  /// A range together with those that it touches.
  Range extended(Range range) const {
    for (const int64_t offset : {range.begin, range.end}) {
      const auto at = ranges_.upper_bound(offset);
      if (at == ranges_.begin() || std::prev(at)->second < offset) continue;
      range.begin = std::min(range.begin, std::prev(at)->first);
      range.end = std::max(range.end, std::prev(at)->second);
    }
    return range;
  }
  bool empty() const { return ranges_.empty(); }
  Iterator begin() const { return ranges_.begin(); }
  Iterator end() const { return ranges_.end(); }
  /// The first range that ends behind an offset.
  Iterator reaching_beyond(int64_t offset) const {
    const auto at = ranges_.upper_bound(offset);
    return at != ranges_.begin() && std::prev(at)->second > offset ? std::prev(at) : at;
  }

 private:
  std::map<int64_t, int64_t> ranges_;  // ends, by begins
};

/// The offsets that are in one of several sets, from the lowest on.
class Union {
 public:
  void clear() { cursors_.clear(); }
  void add(const RangeSet& set) {
    if (!set.empty()) cursors_.push_back({&set, set.begin()});
  }
  /// The next gap: what is free from `end` on. Empty behind the last range.
  std::optional<Range> next_gap(int64_t& end) {
    for (;;) {
      int64_t next = INT64_MAX;
      const int64_t before = end;
      for (auto& [set, at] : cursors_) {
        if (at != set->end() && at->second <= end && ++at != set->end() && at->second <= end)
          at = set->reaching_beyond(end);
        if (at == set->end()) continue;
        if (at->first <= end)
          end = at->second;
        else
          next = std::min(next, at->first);
      }
      if (end != before) continue;
      if (next == INT64_MAX) return std::nullopt;
      return Range{end, next};
    }
  }

 private:
  std::vector<std::pair<const RangeSet*, RangeSet::Iterator>> cursors_;
};

/// Which offsets are in use when: a segment tree over the steps of a plan.
class UsedRanges {
 public:
  explicit UsedRanges(const std::vector<ArenaBuffer>& buffers) {
    for (const ArenaBuffer& buffer : buffers) steps_.insert(steps_.end(), {buffer.first, buffer.last});
    std::ranges::sort(steps_);
    steps_.erase(std::unique(steps_.begin(), steps_.end()), steps_.end());
    nodes_.resize(4 * steps_.size());
  }

  void add(const ArenaBuffer& buffer) {
    if (buffer.bytes == 0) return;
    add(1, 0, steps_.size() - 1, index_of(buffer.first), index_of(buffer.last),
        {buffer.offset, buffer.offset + buffer.bytes});
  }

  /// The offset of the smallest gap that a buffer fits into while it is live; the lowest of several.
  int64_t best_fit(const ArenaBuffer& buffer) {
    used_.clear();
    visit(buffer, [&](const Node& node, bool whole) { used_.add(whole ? node.below : node.throughout); });
    int64_t end = 0, best = -1, best_gap = INT64_MAX;
    while (const auto gap = used_.next_gap(end)) {
      const int64_t bytes = gap->end - gap->begin;
      if (bytes >= buffer.bytes && bytes < best_gap) {
        best = gap->begin;
        best_gap = bytes;
        if (bytes == buffer.bytes) break;
      }
      end = gap->end;
    }
    return best >= 0 ? best : end;
  }

 private:
  /// Some successive steps.
  struct Node {
    RangeSet
        throughout;  ///< in use in all of these steps; not all of what is so in the steps of a node above
    RangeSet below;  ///< in use in some of these steps; the same
  };
  /// What touches a range throughout the steps of a node is added to it below that node. So ranges that fill
  /// each other's gaps are one range there, and a query has few to look at.
  void add(size_t node, size_t low, size_t high, size_t first, size_t last, Range range) {
    nodes_[node].below.add(range);
    if (first <= low && high <= last) return nodes_[node].throughout.add(range);
    range = nodes_[node].throughout.extended(range);
    const size_t middle = low + (high - low) / 2;
    if (first <= middle) add(2 * node, low, middle, first, last, range);
    if (last > middle) add(2 * node + 1, middle + 1, high, first, last, range);
  }
  size_t index_of(int64_t step) const {
    return static_cast<size_t>(std::ranges::lower_bound(steps_, step) - steps_.begin());
  }
  /// Calls f(node, whole) from the root down for nodes of the tree that have steps in which the buffer is
  /// live. `whole`: it is live in all steps of the node; the walk goes no deeper there.
  template <class F>
  void visit(const ArenaBuffer& buffer, const F& f) {
    visit(1, 0, steps_.size() - 1, index_of(buffer.first), index_of(buffer.last), f);
  }
  template <class F>
  void visit(size_t node, size_t low, size_t high, size_t first, size_t last, const F& f) {
    const bool whole = first <= low && high <= last;
    f(nodes_[node], whole);
    if (whole) return;
    const size_t middle = low + (high - low) / 2;
    if (first <= middle) visit(2 * node, low, middle, first, last, f);
    if (last > middle) visit(2 * node + 1, middle + 1, high, first, last, f);
  }

  std::vector<int64_t> steps_;  // at which a buffer's life begins or ends
  std::vector<Node> nodes_;     // the children of node i are 2 i and 2 i + 1
  Union used_;                  // of the present query
};

}  // namespace

std::vector<size_t> by_size(const std::vector<ArenaBuffer>& buffers) {
  std::vector<size_t> order(buffers.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return buffers[a].bytes > buffers[b].bytes; });
  return order;
}

int64_t place_in_order(std::vector<ArenaBuffer>& buffers, const std::vector<size_t>& order) {
  UsedRanges used(buffers);
  int64_t total = 0;
  for (const size_t i : order) {
    ArenaBuffer& buffer = buffers[i];
    buffer.offset = used.best_fit(buffer);
    total = std::max(total, buffer.offset + buffer.bytes);
    used.add(buffer);
  }
  return total;
}

int64_t place_best_fit(std::vector<ArenaBuffer>& buffers) {
  return place_in_order(buffers, by_size(buffers));
}

int64_t largest_live_set(const std::vector<ArenaBuffer>& buffers) {
  std::vector<const ArenaBuffer*> begins, ends;
  for (const ArenaBuffer& buffer : buffers) begins.push_back(&buffer);
  ends = begins;
  std::ranges::sort(begins, {}, &ArenaBuffer::first);
  std::ranges::sort(ends, {}, &ArenaBuffer::last);
  int64_t live = 0, largest = 0;
  auto ended = ends.begin();
  for (const ArenaBuffer* buffer : begins) {
    for (; (*ended)->last < buffer->first; ++ended) live -= (*ended)->bytes;
    live += buffer->bytes;
    largest = std::max(largest, live);
  }
  return largest;
}

void verify(const MemoryPlan& plan) {
  std::vector<size_t> begins, ends;
  for (size_t i = 0; i < plan.buffers.size(); ++i) {
    const ArenaBuffer& buffer = plan.buffers[i];
    if (buffer.offset < 0 || buffer.offset + buffer.bytes > plan.arena_bytes)
      throw Error(fmt::format("memory plan: buffer {} lies beyond the arena", i));
    if (buffer.bytes > 0) begins.push_back(i);
  }
  ends = begins;
  std::ranges::sort(begins, {}, [&](size_t i) { return plan.buffers[i].first; });
  std::ranges::sort(ends, {}, [&](size_t i) { return plan.buffers[i].last; });
  std::map<int64_t, size_t> live;  // by offset: at each step none may reach into the next
  const auto check = [&](size_t low, size_t high) {
    const ArenaBuffer &a = plan.buffers[low], &b = plan.buffers[high];
    if (a.offset + a.bytes > b.offset)
      throw Error(fmt::format("memory plan: buffers {} and {} overlap at %{}", std::min(low, high),
                              std::max(low, high), std::max(a.first, b.first)));
  };
  auto ended = ends.begin();
  for (const size_t i : begins) {
    for (; plan.buffers[*ended].last < plan.buffers[i].first; ++ended)
      live.erase(plan.buffers[*ended].offset);
    const auto [at, fresh] = live.emplace(plan.buffers[i].offset, i);
    if (!fresh) check(at->second, i);
    if (at != live.begin()) check(std::prev(at)->second, i);
    if (std::next(at) != live.end()) check(i, std::next(at)->second);
  }
}

}  // namespace espalier
