#include "espalier/core/deferred/order.h"

#include <algorithm>
#include <map>
#include <queue>

namespace espalier {

namespace {

using Lists = std::vector<std::vector<uint32_t>>;

/// Operations between a node and what does not wait.
std::vector<uint32_t> depths(const WaitingGraph& graph) {
  std::vector<uint32_t> depth(graph.size(), 0);
  for (uint32_t i = 0; i < graph.size(); ++i)
    for (const WaitingUse& use : graph.uses(i))
      if (!use.external()) depth[i] = std::max(depth[i], depth[use.from] + 1);
  return depth;
}

Lists by_depth(const WaitingGraph& graph) {
  const std::vector<uint32_t> depth = depths(graph);
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> lists;
  for (uint32_t i = 0; i < graph.size(); ++i) lists[{depth[i], graph.kind(i)}].push_back(i);
  Lists result;
  for (auto& [key, list] : lists) result.push_back(std::move(list));
  return result;
}

/// Takes all ready nodes of one kind again and again: of that whose nodes that are left have the least mean
/// depth.
class Agenda {
 public:
  explicit Agenda(const WaitingGraph& graph) : graph_(graph), depth_(depths(graph)), missing_(graph.size()) {
    first_reader_.assign(graph.size() + 1, 0);
    for (uint32_t i = 0; i < graph.size(); ++i) {
      const uint32_t kind = local(graph.kind(i));
      kinds_[kind].left += 1;
      kinds_[kind].depth += depth_[i];
      for (const WaitingUse& use : graph.uses(i))
        if (!use.external()) ++first_reader_[use.from + 1], ++missing_[i];
    }
    for (uint32_t i = 0; i < graph.size(); ++i) first_reader_[i + 1] += first_reader_[i];
    readers_.resize(first_reader_.back());
    std::vector<uint32_t> next(first_reader_.begin(), first_reader_.end() - 1);
    for (uint32_t i = 0; i < graph.size(); ++i)
      for (const WaitingUse& use : graph.uses(i))
        if (!use.external()) readers_[next[use.from]++] = i;
  }

  Lists run() {
    for (uint32_t i = 0; i < graph_.size(); ++i)
      if (missing_[i] == 0) make_ready(i);
    Lists result;
    while (!queue_.empty()) {
      const auto [mean, kind] = queue_.top();
      queue_.pop();
      std::vector<uint32_t> list = std::move(kinds_[kind].ready);
      kinds_[kind].ready.clear();
      for (const uint32_t i : list) {
        kinds_[kind].left -= 1;
        kinds_[kind].depth -= depth_[i];
      }
      for (const uint32_t i : list)
        for (uint32_t r = first_reader_[i]; r < first_reader_[i + 1]; ++r)
          if (--missing_[readers_[r]] == 0) make_ready(readers_[r]);
      result.push_back(std::move(list));
    }
    return result;
  }

 private:
  struct Kind {
    std::vector<uint32_t> ready;
    int64_t left = 0, depth = 0;  ///< number of nodes, and sum of their depths
  };

  uint32_t local(uint32_t kind) {
    const auto [at, fresh] = numbers_.try_emplace(kind, static_cast<uint32_t>(kinds_.size()));
    if (fresh) kinds_.emplace_back();
    return at->second;
  }
  /// The mean depth of a kind changes only when its nodes are taken: then it has none in the queue.
  void make_ready(uint32_t i) {
    const uint32_t number = numbers_.find(graph_.kind(i))->second;
    Kind& kind = kinds_[number];
    kind.ready.push_back(i);
    if (kind.ready.size() == 1)
      queue_.emplace(static_cast<double>(kind.depth) / static_cast<double>(kind.left), number);
  }

  const WaitingGraph& graph_;
  std::vector<uint32_t> depth_, missing_;
  std::vector<uint32_t> first_reader_, readers_;
  std::unordered_map<uint32_t, uint32_t> numbers_;
  std::vector<Kind> kinds_;
  using Entry = std::pair<double, uint32_t>;
  std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
};

}  // namespace

Lists batches_of(const WaitingGraph& graph, BatchPolicy policy) {
  return policy == BatchPolicy::depth ? by_depth(graph) : Agenda(graph).run();
}

}  // namespace espalier
