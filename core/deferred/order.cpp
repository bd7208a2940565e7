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
  for (uint32_t i = 0; i < graph.size(); ++i)
    if (!graph.is_dropped(i)) lists[{depth[i], graph.kind(i)}].push_back(i);
  Lists result;
  for (auto& [key, list] : lists) result.push_back(std::move(list));
  return result;
}

/// Takes all ready nodes of one kind again and again: of the kind that comes first by a rule.
class Agenda {
 public:
  /// What comes first.
  enum class Rule : uint8_t {
    /// Kinds of which all nodes that are left are ready, then that whose nodes have the least mean depth.
    complete,
    /// The kind whose deepest node is the least deep.
    greatest_depth,
  };

  explicit Agenda(const WaitingGraph& graph) : depth_(depths(graph)), kind_of_(graph.size()) {
    number_kinds(graph);
    missing_.resize(graph.size());
    first_reader_.assign(graph.size() + 1, 0);
    for (uint32_t i = 0; i < graph.size(); ++i) {
      if (graph.is_dropped(i)) continue;
      Kind& kind = kinds_[kind_of_[i]];
      kind.left += 1;
      kind.depth += depth_[i];
      kind.greatest = std::max(kind.greatest, depth_[i]);
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
  struct Kind {
    std::vector<uint32_t> ready = {};
    int64_t left = 0, depth = 0;  ///< number of nodes, and sum of their depths
    uint32_t greatest = 0;        ///< depth
    double priority = 0;          ///< in the queue; the least comes first
  };

  /// One order: what changes while nodes are taken.
  class Run {
   public:
    Run(const Agenda& agenda, Rule rule)
        : agenda_(agenda), rule_(rule), missing_(agenda.missing_), kinds_(agenda.kinds_) {}

    Lists lists() {
      for (uint32_t i = 0; i < missing_.size(); ++i)
        if (missing_[i] == 0 && agenda_.kind_of_[i] != NumberTable::none) make_ready(i);
      Lists result;
      while (!queue_.empty()) {
        const auto [priority, number] = queue_.top();
        queue_.pop();
        Kind& kind = kinds_[number];
        if (kind.ready.empty() || kind.priority != priority) continue;  // it has another entry, or is done
        std::vector<uint32_t> list = std::exchange(kind.ready, {});
        for (const uint32_t i : list) {
          kind.left -= 1;
          kind.depth -= agenda_.depth_[i];
        }
        for (const uint32_t i : list)
          for (const uint32_t reader : agenda_.readers_of(i))
            if (--missing_[reader] == 0) make_ready(reader);
        result.push_back(std::move(list));
      }
      return result;
    }

   private:
    /// The mean depth of a kind changes only when its nodes are taken: then it has none that are ready.
    void make_ready(uint32_t i) {
      const uint32_t number = agenda_.kind_of_[i];
      Kind& kind = kinds_[number];
      kind.ready.push_back(i);
      const bool first = kind.ready.size() == 1;
      const bool complete = rule_ == Rule::complete && static_cast<int64_t>(kind.ready.size()) == kind.left;
      if (!first && !complete) return;
      kind.priority = rule_ == Rule::greatest_depth
                          ? kind.greatest
                          : static_cast<double>(kind.depth) / static_cast<double>(kind.left);
      if (complete) kind.priority -= static_cast<double>(missing_.size());
      queue_.emplace(kind.priority, number);
    }

    using Entry = std::pair<double, uint32_t>;
    const Agenda& agenda_;
    Rule rule_;
    std::vector<uint32_t> missing_;
    std::vector<Kind> kinds_;
    std::priority_queue<Entry, std::vector<Entry>, std::greater<>> queue_;
  };

  /// Numbers the kinds of this graph from 0 on.
  void number_kinds(const WaitingGraph& graph) {
    constexpr uint32_t none = NumberTable::none;
    std::vector<uint32_t> numbers;
    for (uint32_t i = 0; i < graph.size(); ++i) {
      kind_of_[i] = none;
      if (graph.is_dropped(i)) continue;
      if (graph.kind(i) >= numbers.size()) numbers.resize(graph.kind(i) + 1, none);
      uint32_t& number = numbers[graph.kind(i)];
      if (number == none) {
        number = static_cast<uint32_t>(kinds_.size());
        kinds_.emplace_back();
      }
      kind_of_[i] = number;
    }
  }
  std::span<const uint32_t> readers_of(uint32_t i) const {
    return {readers_.data() + first_reader_[i], readers_.data() + first_reader_[i + 1]};
  }

  std::vector<uint32_t> depth_, kind_of_;  ///< of each node
  std::vector<uint32_t> missing_;          ///< operands of each node that wait
  std::vector<uint32_t> first_reader_, readers_;
  std::vector<Kind> kinds_;
};

/// Neither rule makes the fewest batches of every graph: of what each step of a sequence adds to a loss the
/// second makes one batch at the end, of trees of different functions the first makes fewer.
Lists by_agenda(const WaitingGraph& graph) {
  const Agenda agenda(graph);
  Lists complete = agenda.lists(Agenda::Rule::complete);
  Lists greatest = agenda.lists(Agenda::Rule::greatest_depth);
  return greatest.size() < complete.size() ? greatest : complete;
}

}  // namespace

Lists batches_of(const WaitingGraph& graph, BatchPolicy policy) {
  return policy == BatchPolicy::depth ? by_depth(graph) : by_agenda(graph);
}

}  // namespace espalier
