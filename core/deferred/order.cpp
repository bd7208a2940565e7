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

Lists by_depth(const WaitingGraph& graph, const NodeKinds& kinds) {
  const std::vector<uint32_t> depth = depths(graph);
  std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>> lists;
  for (uint32_t i = 0; i < graph.size(); ++i)
    if (!graph.is_dropped(i)) lists[{depth[i], kinds[graph.kind(i)].group}].push_back(i);
  Lists result;
  for (auto& [key, list] : lists) result.push_back(std::move(list));
  return result;
}

/// Takes all ready nodes of one group of kinds again and again: of the group that comes first by a rule.
class Agenda {
 public:
  /// What comes first.
  enum class Rule : uint8_t {
    /// Groups of which all nodes that are left are ready, then that whose nodes have the least mean depth.
    complete,
    /// The group whose deepest node is the least deep.
    greatest_depth,
  };

  Agenda(const WaitingGraph& graph, const NodeKinds& kinds) : depth_(depths(graph)), group_of_(graph.size()) {
    number_groups(graph, kinds);
    missing_.resize(graph.size());
    first_reader_.assign(graph.size() + 1, 0);
    for (uint32_t i = 0; i < graph.size(); ++i) {
      if (graph.is_dropped(i)) continue;
      Group& group = groups_[group_of_[i]];
      group.left += 1;
      group.depth += depth_[i];
      group.greatest = std::max(group.greatest, depth_[i]);
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

  Lists lists(Rule rule) const { return Run(*this, rule).lists(); }

 private:
  struct Group {
    std::vector<uint32_t> ready = {};
    int64_t left = 0, depth = 0;  ///< number of nodes, and sum of their depths
    uint32_t greatest = 0;        ///< depth
    double priority = 0;          ///< in the queue; the least comes first
  };

  /// One order: what changes while nodes are taken.
  class Run {
   public:
    Run(const Agenda& agenda, Rule rule)
        : agenda_(agenda), rule_(rule), missing_(agenda.missing_), groups_(agenda.groups_) {}

    Lists lists() {
      for (uint32_t i = 0; i < missing_.size(); ++i)
        if (missing_[i] == 0 && agenda_.group_of_[i] != NumberTable::none) make_ready(i);
      Lists result;
      while (!queue_.empty()) {
        const auto [priority, number] = queue_.top();
        queue_.pop();
        Group& group = groups_[number];
        if (group.ready.empty() || group.priority != priority) continue;  // it has another entry, or is done
        std::vector<uint32_t> list = std::exchange(group.ready, {});
        for (const uint32_t i : list) {
          group.left -= 1;
          group.depth -= agenda_.depth_[i];
        }
        for (const uint32_t i : list)
          for (const uint32_t reader : agenda_.readers_of(i))
            if (--missing_[reader] == 0) make_ready(reader);
        result.push_back(std::move(list));
      }
      return result;
    }

   private:
    /// The mean depth of a group changes only when its nodes are taken: then it has none that are ready.
    void make_ready(uint32_t i) {
      const uint32_t number = agenda_.group_of_[i];
      Group& group = groups_[number];
      group.ready.push_back(i);
      const bool first = group.ready.size() == 1;
      const bool complete = rule_ == Rule::complete && static_cast<int64_t>(group.ready.size()) == group.left;
      if (!first && !complete) return;
      group.priority = rule_ == Rule::greatest_depth
                           ? group.greatest
                           : static_cast<double>(group.depth) / static_cast<double>(group.left);
      if (complete) group.priority -= static_cast<double>(missing_.size());
      queue_.emplace(group.priority, number);
    }

    using Entry = std::pair<double, uint32_t>;
    const Agenda& agenda_;
    Rule rule_;
    std::vector<uint32_t> missing_;
    std::vector<Group> groups_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  };

  /// Numbers the groups of this graph from 0 on.
  void number_groups(const WaitingGraph& graph, const NodeKinds& kinds) {
    constexpr uint32_t none = NumberTable::none;
    std::vector<uint32_t> numbers;
    for (uint32_t i = 0; i < graph.size(); ++i) {
      group_of_[i] = none;
      if (graph.is_dropped(i)) continue;
      const uint32_t group = kinds[graph.kind(i)].group;
      if (group >= numbers.size()) numbers.resize(group + 1, none);
      uint32_t& number = numbers[group];
      if (number == none) {
        number = static_cast<uint32_t>(groups_.size());
        groups_.emplace_back();
      }
      group_of_[i] = number;
    }
  }
  std::span<const uint32_t> readers_of(uint32_t i) const {
    return {readers_.data() + first_reader_[i], readers_.data() + first_reader_[i + 1]};
  }

  std::vector<uint32_t> depth_, group_of_;  ///< of each node
  std::vector<uint32_t> missing_;           ///< operands of each node that wait
  std::vector<uint32_t> first_reader_, readers_;
  std::vector<Group> groups_;
};

/// Neither rule makes the fewest batches of every graph: of what each step of a sequence adds to a loss the
/// second makes one batch at the end, of trees of different functions the first makes fewer.
Lists by_agenda(const WaitingGraph& graph, const NodeKinds& kinds) {
  const Agenda agenda(graph, kinds);
  Lists complete = agenda.lists(Agenda::Rule::complete);
  Lists greatest = agenda.lists(Agenda::Rule::greatest_depth);
  return greatest.size() < complete.size() ? greatest : complete;
}

}  // namespace

Lists batches_of(const WaitingGraph& graph, const NodeKinds& kinds, BatchPolicy policy) {
  return policy == BatchPolicy::depth ? by_depth(graph, kinds) : by_agenda(graph, kinds);
}

}  // namespace espalier
