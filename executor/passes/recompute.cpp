// Recomputation under a memory budget. The memory of a value that is not read for a long time is released,
// and a copy of its node computes it again before the next reader.
#include <algorithm>
#include <cmath>
#include <optional>
#include <queue>
#include <tuple>
#include <utility>

#include "espalier/executor/passes/passes.h"
#include "espalier/executor/passes/rematerialization.h"

namespace espalier {

namespace {

constexpr double crumb = 1 << 16;  // values smaller than the peak by this factor are ignored

// A node that is rebuilt takes about half a microsecond. Candidates are measured until so many are, then
// taken by the bounds of their gains, and at last the search ends.
constexpr size_t exact_work = 4'000'000, all_work = 12'000'000;

double bytes_of(const GraphNode& n) {
  double bytes = 0;
  for (const Spec& output : n.outputs) bytes += static_cast<double>(output.bytes());
  return bytes;
}

/// Returns true for ops that may have far more arithmetic than memory traffic, such as products and
/// convolutions.
bool is_product(const GraphNode& n) {
  if (n.op->kind() == OpKind::matmul) return true;
  if (n.op->kind() != OpKind::other || n.op->traits().only_copies) return false;
  size_t read = 0;
  for (size_t k = 0; k < n.inputs.size(); ++k) read += n.op->reads_elements(k);
  return read > 1;
}

/// The time to compute a node, in units of the time to move one byte.
double cost_of(const Graph& graph, const GraphNode& n) {
  double cost = bytes_of(n);
  std::vector<double> elements;
  for (size_t k = 0; k < n.inputs.size(); ++k) {
    if (!n.op->reads_elements(k)) continue;
    cost += static_cast<double>(graph.spec(n.inputs[k]).bytes());
    elements.push_back(static_cast<double>(graph.spec(n.inputs[k]).shape.elements()));
  }
  if (!is_product(n)) return cost;
  std::sort(elements.rbegin(), elements.rend());
  elements.resize(2, 1);  // assumes inputs [m, k] and [k, n] and an output [m, n]
  constexpr double multiplications_per_byte = 5;
  const auto out = static_cast<double>(n.outputs[0].shape.elements());
  return cost + std::sqrt(elements[0] * elements[1] * out) / multiplications_per_byte;
}

/// Bytes in use at each step.
std::vector<int64_t> live_bytes(const MemoryPlan& plan, size_t steps) {
  std::vector<int64_t> live(steps + 2, 0);
  for (const ArenaBuffer& buffer : plan.buffers) {
    live[static_cast<size_t>(buffer.first)] += buffer.bytes;
    live[static_cast<size_t>(buffer.last) + 1] -= buffer.bytes;
  }
  for (size_t i = 1; i < live.size(); ++i) live[i] += live[i - 1];
  return live;
}

double excess_over(const std::vector<int64_t>& live, int64_t target) {
  double excess = 0;
  for (const int64_t bytes : live) excess += static_cast<double>(std::max<int64_t>(0, bytes - target));
  return excess;
}

/// Greedy search: repeatedly drops the value that reduces the excess (bytes over the target, summed over
/// steps) most for its cost; products only if no other value helps. `work` counts the nodes of the graphs
/// that were rebuilt, which bounds the search in networks of thousands of nodes.
class Search {
 public:
  Search(const Graph& base, int64_t budget, bool in_place, size_t& work)
      : work_(work),
        base_(base),
        budget_(budget),
        in_place_(in_place),
        uses_(base, plan_lifetimes(base, in_place)),
        gaps_(base.nodes.size(), no_gap) {
    const auto first = std::find_if(base.nodes.begin(), base.nodes.end(),
                                    [](const GraphNode& n) { return n.op->has_side_effects(); });
    first_assignment_ = static_cast<uint32_t>(first - base.nodes.begin());
    for (const GraphNode& n : base.nodes) costs_.push_back(cost_of(base, n));
  }

  /// Returns the best graph that was found, and the size of its arena.
  std::pair<Graph, int64_t> run() {
    std::pair<Graph, int64_t> best{base_, plan_memory(base_, in_place_).arena_bytes};
    // An arena has gaps, so the target for live bytes may have to be lower than the budget.
    for (int64_t target = budget_; target > 0;) {
      const bool reached = lower_to(target);
      auto now = finished();
      const int64_t arena = now.second;
      if (arena < best.second) best = std::move(now);
      if (arena <= budget_) {
        give_back();
        return finished();
      }
      if (!reached) break;
      target -= std::max(arena - budget_, target / 64 + 1);
    }
    // The target cannot be reached. A greedy search for a higher target may still end lower than this one.
    int64_t low = budget_, high = best.second;
    for (int tries = 0; tries < 4 && !ended() && best.second > budget_ && high - low > high / 64; ++tries) {
      const int64_t target = low + (high - low) / 2;
      gaps_.assign(gaps_.size(), no_gap);
      (lower_to(target) ? high : low) = target;
      if (auto now = finished(); now.second < best.second) best = std::move(now);
    }
    return best;
  }

 private:
  struct State {
    std::vector<uint32_t> position;  ///< of each node of the base graph except views
    std::vector<int64_t> live;
    Readers uses;
    double excess;
    std::vector<int64_t> too_much;  ///< for each step, the number of earlier steps over the target
  };
  struct Candidate {
    uint32_t node;
    bool is_cheap = false;
    double gain = 0;  ///< reduction of the excess for each unit of cost
    size_t round = 0;
    DropPoints gaps = {};

    bool operator<(const Candidate& other) const {
      return std::tuple(is_cheap, gain, other.node) < std::tuple(other.is_cheap, other.gain, node);
    }
  };

  bool exact() const { return work_ < exact_work; }
  bool ended() const { return work_ >= all_work; }

  std::pair<Graph, int64_t> finished() const {
    Graph graph = Rematerialized(base_, uses_, gaps_).graph;
    dead_nodes(graph);
    const int64_t arena = plan_memory(graph, in_place_).arena_bytes;
    return {std::move(graph), arena};
  }

  bool can_copy(uint32_t i) const {
    const GraphNode& n = base_.nodes[i];
    const Effect effect = n.op->effect();  // a copy of a random node draws the same numbers
    return !n.op->is_leaf() && !n.op->feed() && !uses_.is_seen_through[i] &&
           (effect == Effect::none || effect == Effect::random);
  }

  State look(int64_t target) const {
    Rematerialized rebuilt(base_, uses_, gaps_);
    work_ += rebuilt.graph.nodes.size();
    const MemoryPlan plan = plan_lifetimes(rebuilt.graph, in_place_);
    std::vector<int64_t> live = live_bytes(plan, rebuilt.graph.nodes.size()), too_much{0};
    for (const int64_t bytes : live) too_much.push_back(too_much.back() + (bytes > target));
    Readers uses(rebuilt.graph, plan);
    const double excess = excess_over(live, target);
    return {std::move(rebuilt.position), std::move(live), std::move(uses), excess, std::move(too_much)};
  }

  double excess_with(const DropPoints& gaps, int64_t target) const {
    const Rematerialized rebuilt(base_, uses_, gaps);
    work_ += rebuilt.graph.nodes.size();
    return excess_over(live_bytes(plan_lifetimes(rebuilt.graph, in_place_), rebuilt.graph.nodes.size()),
                       target);
  }

  /// The successive readers (before, after) of node i with the most steps over the target between them.
  std::optional<std::pair<uint32_t, uint32_t>> widest_gap(uint32_t i, const State& now) const {
    std::optional<std::pair<uint32_t, uint32_t>> widest;
    int64_t most = 0;
    uint32_t before = i;
    for (const uint32_t after : uses_.readers[i]) {
      if (after > first_assignment_ || after == base_.nodes.size()) break;  // leaves have changed by then
      const int64_t steps = now.too_much[now.position[after]] - now.too_much[now.position[before] + 1];
      if (steps > most) {
        most = steps;
        widest = {before, after};
      }
      before = after;
    }
    return widest;
  }

  /// Drop points for node i and, recursively, for those inputs that are dead when it is recomputed and not
  /// much smaller than it.
  DropPoints with_inputs(uint32_t i, std::pair<uint32_t, uint32_t> gap, const State& now) const {
    DropPoints gaps = gaps_;
    gaps[i] = gap.first;
    std::vector<uint32_t> todo{i};
    while (!todo.empty()) {
      const GraphNode& n = base_.nodes[todo.back()];
      todo.pop_back();
      for (size_t k = 0; k < n.inputs.size(); ++k) {
        const uint32_t input = uses_.behind[n.inputs[k].node];
        if (!n.op->reads_elements(k) || gaps[input] != no_gap || !can_copy(input)) continue;
        const uint32_t place = now.position[input];
        if (now.uses.last(place) >= now.position[gap.second]) continue;
        if (4 * bytes_of(base_.nodes[input]) <= bytes_of(base_.nodes[i])) continue;
        gaps[input] = uses_.last(input);
        todo.push_back(input);
      }
    }
    return gaps;
  }

  /// The candidate with an upper bound of its gain: its bytes, at each step over the target in its gap.
  Candidate bounded(uint32_t i, const State& now) const {
    Candidate c{i};
    const auto gap = widest_gap(i, now);
    if (!gap || gaps_[i] != no_gap) return c;
    const int64_t steps =
        now.too_much[now.position[gap->second]] - now.too_much[now.position[gap->first] + 1];
    c.is_cheap = !is_product(base_.nodes[i]);
    c.gain = bytes_of(base_.nodes[i]) * static_cast<double>(steps) / (1 + costs_[i]);
    return c;
  }

  /// Computes the gain of dropping the candidate's node, with its dead inputs or alone.
  void measure(Candidate& c, const State& now, int64_t target) const {
    if (!exact()) {
      const size_t round = c.round;
      c = bounded(c.node, now);
      c.round = round;
      if (c.gain > 0) c.gaps = with_inputs(c.node, *widest_gap(c.node, now), now);
      return;
    }
    c.gain = 0;
    const auto gap = widest_gap(c.node, now);
    if (!gap || gaps_[c.node] != no_gap) return;
    const auto consider = [&](DropPoints gaps) {
      double cost = 1;
      bool cheap = true;
      for (uint32_t i = 0; i < gaps.size(); ++i)
        if (gaps[i] != gaps_[i]) {
          cost += costs_[i];
          cheap &= !is_product(base_.nodes[i]);
        }
      const double gain = (now.excess - excess_with(gaps, target)) / cost;
      if (gain <= 0 || std::pair(cheap, gain) <= std::pair(c.is_cheap && c.gain > 0, c.gain)) return;
      c.gain = gain;
      c.is_cheap = cheap;
      c.gaps = std::move(gaps);
    };
    DropPoints alone = gaps_;
    alone[c.node] = gap->first;
    DropPoints chain = with_inputs(c.node, *gap, now);
    if (chain != alone) consider(std::move(chain));
    consider(std::move(alone));
  }

  /// Drops values until no step is over the target. Returns false if that cannot be reached.
  bool lower_to(int64_t target) {
    State now = look(target);
    std::pair<int64_t, DropPoints> lowest{*std::max_element(now.live.begin(), now.live.end()), gaps_};
    for (bool helped = true; helped && now.excess > 0 && !ended();) {
      helped = false;
      std::priority_queue<Candidate> queue;
      size_t round = 0;
      for (uint32_t i = 0; i < base_.nodes.size(); ++i) {
        if (!can_copy(i) || crumb * bytes_of(base_.nodes[i]) < static_cast<double>(lowest.first)) continue;
        Candidate c{i};
        measure(c, now, target);
        if (c.gain > 0) queue.push(std::move(c));
      }
      // Gains hardly ever grow, so older measurements are taken as upper bounds: only the first candidate is
      // measured again.
      while (!queue.empty() && now.excess > 0 && !ended()) {
        Candidate c = queue.top();
        queue.pop();
        if (c.round < round) {
          measure(c, now, target);
          c.round = round;
          if (c.gain > 0) queue.push(std::move(c));
          continue;
        }
        std::swap(gaps_, c.gaps);
        State then = look(target);
        if (then.excess >= now.excess) {  // It was not measured.
          std::swap(gaps_, c.gaps);
          continue;
        }
        now = std::move(then);
        helped = true;
        ++round;
        const int64_t peak = *std::max_element(now.live.begin(), now.live.end());
        if (peak < lowest.first) lowest = {peak, gaps_};
      }
    }
    if (now.excess <= 0) return true;
    gaps_ = std::move(lowest.second);
    return false;
  }

  /// Restores values that the budget does not require to be dropped, the most expensive first.
  void give_back() {
    std::vector<uint32_t> given;
    for (uint32_t i = 0; i < gaps_.size(); ++i)
      if (gaps_[i] != no_gap) given.push_back(i);
    std::stable_sort(given.begin(), given.end(),
                     [&](uint32_t a, uint32_t b) { return costs_[a] > costs_[b]; });
    for (const uint32_t i : given) {
      const uint32_t gap = std::exchange(gaps_[i], no_gap);
      if (finished().second > budget_) gaps_[i] = gap;
    }
  }

  size_t& work_;
  const Graph& base_;
  const int64_t budget_;
  const bool in_place_;
  const Readers uses_;
  DropPoints gaps_;
  uint32_t first_assignment_;
  std::vector<double> costs_;
};

}  // namespace

bool recompute(Graph& graph, const CompileOptions& options) {
  return recompute(graph, options.memory_budget, options.runs("in_place"));
}

bool recompute(Graph& graph, int64_t budget, bool in_place) {
  int64_t arena = plan_memory(graph, in_place).arena_bytes;
  bool changed = false;
  size_t work = 0;
  while (arena > budget && work < all_work) {
    auto [better, less] = Search(graph, budget, in_place, work).run();
    if (less > budget && less > arena - arena / 64) break;  // the gain is negligible
    if (less >= arena) break;
    graph = std::move(better);
    arena = less;
    changed = true;
  }
  return changed;
}

}  // namespace espalier
