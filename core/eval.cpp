#include "espalier/core/eval.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <mutex>
#include <optional>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/feed.h"
#include "espalier/core/leaf_use.h"
#include "espalier/core/loop_operand.h"
#include "espalier/core/open_sizes.h"
#include "espalier/core/step_assignments.h"
#include "espalier/core/train_phase.h"
#include "espalier/core/tree.h"

namespace espalier {

namespace {

/// A leaf's value is fetched from the memory of the executor that has it.
void bring_home(Node& leaf) {
  if (is_loop_operand(leaf.op()))
    throw UnsupportedError(
        "scan: the value of an operand of the step, or one that depends on it, was asked for; the step is "
        "only written down: where() chooses by values, and what the step returns is read behind the scan");
  static std::mutex several_threads;
  const std::scoped_lock lock(several_threads);
  if (leaf.has_value()) return;
  Tensor& elsewhere = leaf.rare().elsewhere;
  if (!elsewhere.defined())
    throw Error(fmt::format(
        "{}: another process of the job keeps this state (shard_states); it is here again when execute() has "
        "returned, and after a checkpoint or the end of an epoch of step()",
        leaf.op().name()));
  const Device home = leaf.outputs[0].value.device();
  leaf.outputs[0].value = elsewhere.device() == home ? elsewhere.clone() : elsewhere.to(home);
  elsewhere = {};
  leaf.away.store(false, std::memory_order_release);
}

/// An eager value cannot be computed again once a leaf has changed, or random numbers have been drawn anew:
/// it would be another value.
void check_unchanged(const Node& node, const FeedSnapshot* snapshot = nullptr) {
  for (const Edge& input : node.inputs)
    if (input.node()->may_change() && input.node()->version > std::max(node.id, node.version) &&
        !assigned_in(snapshot, input.node()) &&
        node.op().reads_elements(static_cast<size_t>(&input - node.inputs.begin())))
      located(node.where, [&] {
        const bool leaf = input.node()->is_leaf();
        throw Error(fmt::format(
            "{}: its value was released, and cannot be computed again since a {} it is made of has "
            "been {}; write the expression again, or hold a Variable on it, or ask before {}",
            node.op().name(), leaf ? "leaf" : input.node()->op().name(),
            leaf ? "updated, by an executor or an assignment" : "drawn anew for another step",
            leaf ? "the update" : "that step"));
      });
}

/// One evaluation of lazy nodes.
class Evaluation {
 public:
  /// Updates are always computed anew. Beside a feed eager values may be, too; without one, what is behind
  /// them need not be seen.
  enum class Behind : bool { eager_values_too, not_eager_values };
  explicit Evaluation(std::span<Node* const> targets, Behind behind = Behind::eager_values_too)
      : update_version_(Node::next_id()) {
    for (Node* target : targets) visit(target, behind);
    std::sort(nodes_.begin(), nodes_.end(),
              [](const State& a, const State& b) { return a.node->id < b.node->id; });
    for (uint32_t i = 0; i < nodes_.size(); ++i) order_.insert(nodes_[i].node, i);
    for (Node* target : targets) at(target).is_target = true;
  }

  /// The sources of the targets.
  std::vector<Node*> sources() const {
    std::vector<Node*> list;
    for (const State& state : nodes_)
      if (state.node->op().feed()) list.push_back(state.node);
    return list;
  }

  /// Throws UnsupportedError for a tree in which the size of an open axis was written as a number.
  void check_sizes(Node& target) const {
    if (target.tag != Tag::forward || target.rare().sizes_checked) return;
    std::vector<Node*> tree;
    for (const State& state : nodes_) tree.push_back(state.node);
    check_open_sizes(tree, "an evaluation");
    target.rare().sizes_checked = true;
  }

  /// Finds what must be computed to show that step. Eager nodes whose leaves were assigned before
  /// `refresh_until` are computed again, too.
  void plan(std::shared_ptr<const FeedSnapshot> snapshot, uint64_t refresh_until) {
    snapshot_ = std::move(snapshot);
    version_ = snapshot_->version;
    refresh_until_ = refresh_until;
    for (State& state : nodes_) {
      state = {.node = state.node,
               .is_target = state.is_target,
               .wanted = state.is_target,
               .settled = state.settled};
      find_stale(state);
    }
    find_reached();
    assignments_ = {};
    find_orders();
    // Backwards: what must be computed asks for the values of its inputs.
    for (size_t i = nodes_.size(); i-- > 0;) {
      State& state = nodes_[i];
      state.compute = state.reached && (state.stale || (state.wanted && !state.node->has_value()));
      if (!state.compute && !assignments_.repeats(static_cast<uint32_t>(i))) continue;
      for (size_t k = 0; k < state.node->inputs.size(); ++k) {
        State& input = at(state.node->inputs[k].node());
        ++input.consumers;
        if (state.node->op().reads_elements(k) || (k == 2 && assigns(state))) input.wanted = true;
      }
    }
  }

  /// A node that would be computed from a leaf which was assigned after the step, beside values from before;
  /// null if there is none. Updates read the leaves of their time.
  const Node* mixes_steps() const {
    for (const State& state : nodes_) {
      const Node& node = *state.node;
      if (!state.compute || !node.lazy || node.tag == Tag::update) continue;
      for (size_t k = 0; k < node.inputs.size(); ++k)
        if (const State& input = at(node.inputs[k].node());
            !input.node->lazy && node.op().reads_elements(k) && input.newest > version_)
          return &node;
    }
    return nullptr;
  }

  void compute() {
    for (uint32_t i = 0; i < nodes_.size(); ++i) {
      State& state = nodes_[i];
      const bool repeats = assignments_.repeats(i);
      if (state.compute) compute_one(state);
      if (repeats) assignments_.repeat(i, *state.node, *snapshot_);
      if (state.compute || repeats) release_inputs(*state.node);
    }
    assignments_.assign_all(*snapshot_);
  }

 private:
  struct State {
    Node* node;
    bool is_target = false;
    uint64_t newest = 0;  // when a leaf below was last assigned
    uint64_t drawn = 0;   // when an eager random node at or below this one last drew its numbers
    int32_t consumers = 0;
    bool reached = false;  // from a target, not only for inference
    bool wanted = false;
    bool stale = false;
    bool compute = false;
    bool settled = false;  // its inputs are not seen
  };

  /// Whether it orders an assignment in the step that is evaluated. A value that was only released has done
  /// so.
  static bool assigns(const State& state) {
    return state.compute && state.stale && orders_assignment(state.node->op());
  }
  void find_orders() {
    std::vector<uint32_t> orders;
    for (uint32_t i = 0; i < nodes_.size(); ++i)
      if (nodes_[i].reached && nodes_[i].stale && orders_assignment(nodes_[i].node->op()))
        orders.push_back(i);
    if (orders.empty()) return;
    std::vector<Node*> nodes;
    nodes.reserve(nodes_.size());
    for (const State& state : nodes_) nodes.push_back(state.node);
    assignments_.plan(nodes, orders, *snapshot_);
  }

  void visit(Node* target, Behind behind) {
    walk_.enter(target);
    while (Node* node = walk_.next()) {
      if (node->is_leaf() && !node->has_value()) bring_home(*node);
      const bool settled = behind == Behind::not_eager_values && !node->lazy && node->has_value();
      nodes_.push_back({.node = node, .settled = settled});
      if (!settled) walk_.enter_inputs(*node);
    }
  }
  State& at(const Node* node) { return nodes_[order_.find(node)]; }
  const State& at(const Node* node) const { return nodes_[order_.find(node)]; }

  /// What stands for inference is not computed: see in_train_phase().
  void find_reached() {
    for (size_t i = nodes_.size(); i-- > 0;) {
      State& state = nodes_[i];
      state.reached |= state.is_target;
      if (!state.reached || state.settled) continue;
      for (const Edge& input : state.node->inputs) {
        at(input.node()).reached = true;
        if (chooses_by_phase(state.node->op())) break;
      }
    }
  }

  void find_stale(State& state) {
    Node& node = *state.node;
    if (node.is_leaf()) {
      const AssignedState* assigned = assigned_in(snapshot_.get(), &node);
      state.newest = assigned ? assigned->version : node.version;
      return;
    }
    if (state.settled) return;
    for (const Edge& input : node.inputs) {
      if (&input != node.inputs.begin() && chooses_by_phase(node.op())) break;  // plans of inference read it
      const State& below = at(input.node());
      state.newest = std::max(state.newest, below.newest);
      state.drawn = std::max(state.drawn, below.drawn);
      state.stale |= !node.lazy && below.stale;
    }
    if (node.lazy) {
      state.stale = node.version != version_for(node);
      return;
    }
    const uint64_t computed = std::max(node.id, node.version);
    state.stale |= state.newest < refresh_until_ && state.newest > computed;
    // A gradient may be written after a state was assigned that its inputs were computed without.
    for (const Edge& input : node.inputs)
      state.stale |= !input.node()->is_leaf() && input.node()->version > computed;
    if (!refresh_until_) return;
    // Beside a feed each step draws anew, also numbers for which no feed gives the shape.
    state.stale |= state.drawn > computed || (node.op().is_random() && computed < version_);
    if (node.op().is_random()) state.drawn = state.stale ? version_ : computed;
  }
  uint64_t version_for(const Node& node) const {
    return node.tag == Tag::update ? update_version_ : version_;
  }

  void compute_one(State& state) {
    Node& node = *state.node;
    if (const auto* feed = node.op().feed()) {
      read_source(node, **feed);
    } else {
      if (state.stale) node.drawn = false;  // what was only released is computed from the same numbers
      if (!node.lazy && !state.stale) check_unchanged(node, snapshot_.get());
      located(node.where, [&] { espalier::compute(node, 0, snapshot_.get()); });
      if (assigns(state) && assignments_.acts(node)) assignments_.order(node, *snapshot_);
    }
    node.version = version_for(node);
  }
  void release_inputs(const Node& node) {
    for (const Edge& input : node.inputs) {
      State& below = at(input.node());
      if (--below.consumers == 0 && below.compute && !below.node->value_wanted()) below.node->clear_value();
    }
  }

  void read_source(Node& node, Feed& feed) {
    auto& batch = batches_[&feed];
    const auto epoch = snapshot_->epochs.find(&feed);
    const int64_t shown = epoch == snapshot_->epochs.end() ? feed.epoch() : epoch->second;
    if (batch.empty()) batch = located(node.where, [&] { return feed.batch(shown, snapshot_->step); });
    node.outputs[0].value = batch[node.op().feed_output()];
    node.rare().snapshot = snapshot_;
  }

  uint64_t version_ = 0, update_version_;
  uint64_t refresh_until_ = 0;
  std::shared_ptr<const FeedSnapshot> snapshot_;
  TreeWalk walk_;
  NodeMap order_;
  std::vector<State> nodes_;
  std::map<const Feed*, std::vector<Tensor>> batches_;
  StepAssignments assignments_;
};

/// The number of steps that all these sources can show.
int64_t steps_of(const std::vector<Node*>& sources) {
  int64_t steps = std::numeric_limits<int64_t>::max();
  for (const Node* source : sources) steps = std::min(steps, (*source->op().feed())->steps());
  return steps;
}

/// The epochs of all feeds added up: it changes whenever one is reset.
int64_t epoch_of(const std::vector<Node*>& sources) {
  std::map<const Feed*, int64_t> epochs;
  for (const Node* source : sources) epochs[source->op().feed()->get()] = (*source->op().feed())->epoch();
  int64_t total = 0;
  for (const auto& [feed, epoch] : epochs) total += epoch;
  return total;
}

std::vector<Feed*> feeds_of(const std::vector<Node*>& sources) {
  std::vector<Feed*> feeds;
  for (const Node* source : sources)
    if (Feed* feed = source->op().feed()->get(); std::ranges::find(feeds, feed) == feeds.end())
      feeds.push_back(feed);
  return feeds;
}

/// A new evaluation of that step, in the epochs which the feeds are in.
std::shared_ptr<const FeedSnapshot> new_snapshot(const std::vector<Node*>& sources, int64_t step) {
  auto snapshot = std::make_shared<FeedSnapshot>();
  snapshot->version = Node::next_id();
  snapshot->step = step;
  for (const Node* source : sources) {
    const Feed& feed = **source->op().feed();
    // It throws, and this before its memory is asked for, which no machine has where axes are open.
    if (feed.is_placeholder()) located(source->where, [&] { feed.read(0, step, {}); });
    snapshot->epochs[&feed] = feed.epoch();
  }
  return snapshot;
}

/// A new evaluation of the same batches, with the leaves as they are now.
std::shared_ptr<const FeedSnapshot> again(const FeedSnapshot& shown) {
  auto snapshot = std::make_shared<FeedSnapshot>();
  snapshot->version = Node::next_id();
  snapshot->step = shown.step;
  snapshot->epochs = shown.epochs;
  return snapshot;
}

[[noreturn]] void refuse_late_gradient(const Node& node) {
  throw Error(fmt::format(
      "a gradient is to be computed whose {} ({}:{}) reads a leaf that was updated after the step was shown, "
      "beside values from before; ask for gradients before the update, by backward(), or call forward() "
      "again",
      node.op().name(), node.where.file_name(), node.where.line()));
}

/// Evaluates at the step that `root` shows, or else the source that was shown last, or else at the first.
void evaluate_here(std::span<Node* const> targets, Node* root) {
  compute_all_waiting();
  using Behind = Evaluation::Behind;
  const bool at_step = root && root->lazy;
  std::optional<Evaluation> seen(std::in_place, targets,
                                 at_step ? Behind::eager_values_too : Behind::not_eager_values);
  const std::vector<Node*> sources = seen->sources();  // none is behind an eager value
  const FeedUse use(feeds_of(sources));
  if (!sources.empty() && !at_step) seen.emplace(targets);
  Evaluation& evaluation = *seen;
  if (!sources.empty() && targets.size() == 1) evaluation.check_sizes(*targets[0]);
  std::shared_ptr<const FeedSnapshot> snapshot;
  if (at_step) snapshot = root->rare().snapshot;
  if (!snapshot)
    for (Node* source : sources)
      if (const auto& shown = source->rare().snapshot;
          shown && (!snapshot || shown->version > snapshot->version))
        snapshot = shown;
  if (!snapshot) {
    if (!sources.empty() && steps_of(sources) < 1) throw EndOfData();
    snapshot = new_snapshot(sources, 0);
  }
  // Beside a feed, what was updated before this step is seen in it.
  const bool fed = !sources.empty() || at_step;  // gradients of a fed root need not be fed
  evaluation.plan(snapshot, fed ? snapshot->version : 0);
  if (const Node* node = fed ? evaluation.mixes_steps() : nullptr) {
    if (root) refuse_late_gradient(*node);
    snapshot = again(*snapshot);
    evaluation.plan(snapshot, snapshot->version);
  }
  evaluation.compute();
  for (Node* target : targets)
    if (target->lazy && target->tag == Tag::forward) target->rare().snapshot = snapshot;
}

/// Computes again what an eager node has released.
void compute_again(Node& target) {
  std::vector<Node*> missing;
  TreeWalk walk(&target);
  while (Node* node = walk.next()) {
    if (node->has_value()) continue;
    if (node->is_leaf()) {
      bring_home(*node);
      continue;
    }
    if (node->waits || node->batch) {
      ensure_value(*node);
      continue;
    }
    missing.push_back(node);
    check_unchanged(*node);
    for (size_t i = 0; i < node->inputs.size(); ++i)
      if (node->op().reads_elements(i)) walk.enter(node->inputs[i].node());
  }
  sort_by_age(missing);
  for (Node* node : missing) located(node->where, [&] { compute(*node); });
  for (Node* node : missing)
    if (node != &target && !node->value_wanted()) node->clear_value();
}

}  // namespace

void ensure_value(Node& node) {
  if (node.has_value()) return;
  if (node.waits) compute_waiting(node);
  if (node.batch && !node.has_value()) take_from_batch(node);
  if (node.has_value()) return;
  if (!node.lazy) return compute_again(node);
  Node* target = &node;
  evaluate_here({&target, 1}, nullptr);
}

void evaluate_at(const std::vector<Variable>& variables, Node& root) {
  std::vector<Node*> targets;
  for (const Variable& v : variables) targets.push_back(v.node());
  evaluate_at(targets, root);
}

void evaluate_at(std::span<Node* const> targets, Node& root) { evaluate_here(targets, &root); }

void take_step(Node& node) {
  if (!node.lazy) return ensure_value(node);
  compute_all_waiting();
  Node* target = &node;
  Evaluation evaluation({&target, 1});
  const std::vector<Node*> sources = evaluation.sources();
  const FeedUse use(feeds_of(sources));
  evaluation.check_sizes(node);
  const int64_t epoch = epoch_of(sources);
  Node::Rare& shown = node.rare();
  const int64_t step = shown.cursor_epoch == epoch ? shown.cursor : 0;
  if (!sources.empty() && step >= steps_of(sources)) throw EndOfData();
  const auto snapshot = new_snapshot(sources, step);
  shown.step_failed = true;
  evaluation.plan(snapshot, UINT64_MAX);
  evaluation.compute();
  shown.step_failed = false;
  shown.cursor = step + 1;
  shown.cursor_epoch = epoch;
  shown.snapshot = snapshot;
}

}  // namespace espalier
