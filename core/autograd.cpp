#include "espalier/core/autograd.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/core/tree.h"

namespace espalier {

namespace {

/// Undoes a broadcast; the only place that does. Downstream of a feed, an axis of size 1 in one batch may be
/// broadcast in another.
Variable fitted(Variable gradient, const Edge& input) {
  const Shape& shape = input.spec().shape;
  const bool settled = !gradient.node()->lazy || std::find(shape.begin(), shape.end(), 1) == shape.end();
  if (settled && gradient.shape() == shape) return gradient;
  return sum_to_like(gradient, input.variable());
}

/// The nodes a walk is about to visit. The thread reuses its memory in the next walk.
struct Frontier {
  static constexpr uint32_t none = UINT32_MAX;
  struct Contribution {
    Variable gradient;
    uint32_t output;
    uint32_t next;
  };
  struct Slot {
    uint32_t first = none, last = none;
  };
  std::vector<Slot> slots;
  std::vector<Contribution> contributions;
  std::vector<std::pair<uint64_t, Node*>> heap;    // latest node first
  std::vector<std::pair<uint64_t, Node*>> leaves;  // visited at the end: nothing is below them
  NodeMap mapped;                                  // slots of nodes that must not be marked

  void clear() {
    slots.clear();
    contributions.clear();
    heap.clear();
    leaves.clear();
    if (mapped.size()) mapped = NodeMap();
  }
};

/// One walk from a root towards the leaves, against the order of writing.
class BackwardPass {
 public:
  /// `toward` says of a node whether the gradients wanted pass through it.
  template <class Predicate>
  BackwardPass(const Variable& root, GradientTable& table, const Predicate& toward)
      : table_(table), fresh_(table.empty()) {
    static thread_local std::unique_ptr<Frontier> kept;
    const Nesting nesting(nested_);
    frontier_ = kept ? std::move(kept) : std::make_unique<Frontier>();
    add(root.node(), root.output(), seed(root));
    auto& heap = frontier_->heap;
    while (!heap.empty()) {
      std::pop_heap(heap.begin(), heap.end());
      Node* node = heap.back().second;
      heap.pop_back();
      SmallVector<Variable, 1> gradients;
      const uint32_t slot = slot_of(node);
      for (uint32_t k = 0; k < node->outputs.size(); ++k) gradients.push_back(total(node, k, slot));
      step(*node, gradients, toward);
    }
    table_.add(std::exchange(run_, {}));
    auto& leaves = frontier_->leaves;
    if (!std::is_sorted(leaves.rbegin(), leaves.rend())) std::sort(leaves.rbegin(), leaves.rend());
    for (const auto& [id, leaf] : leaves) (void)total(leaf, 0, slot_of(leaf));
    table_.add(std::move(run_));
    frontier_->clear();
    kept = std::move(frontier_);
  }

 private:
  static BuildContext backward_at(const std::source_location& where) {
    BuildContext now = build_context();
    now.tag = Tag::backward;
    now.no_grad = false;
    now.where = &where;
    return now;
  }

  static Variable seed(const Variable& root) {
    const BuildScope now(backward_at(root.node()->where));
    if (root.shape().elements() == 1)
      return make_leaf(constant_op(), full(root.shape(), 1, root.dtype()).to(root.device()),
                       root.node()->where);
    return broadcast_like(Variable(full({}, 1, root.dtype()).to(root.device())), root);
  }

  /// False for leaves, which threads may share, and for nodes that an outer walk has marked: a rule that asks
  /// for gradients starts a walk within a walk.
  bool by_map(const Node* node) const { return nested_ || node->is_leaf(); }

  struct Nesting {
    static inline thread_local int depth = 0;
    explicit Nesting(bool& nested) { nested = depth++ > 0; }
    ~Nesting() { --depth; }
  };

  uint32_t slot_of(const Node* node) const {
    if (by_map(node)) return frontier_->mapped.find(node);
    return node->walk == id_ ? node->walk_slot : Frontier::none;
  }

  /// Queues a node, with a contribution to the gradient of one of its outputs, if any.
  void add(Node* node, uint32_t output, Variable gradient) {
    Frontier& f = *frontier_;
    uint32_t slot = slot_of(node);
    if (slot == Frontier::none) {
      slot = static_cast<uint32_t>(f.slots.size());
      f.slots.emplace_back();
      if (by_map(node)) {
        f.mapped.insert(node, slot);
      } else {
        node->walk = id_;
        node->walk_slot = slot;
      }
      if (node->is_leaf()) {
        f.leaves.emplace_back(node->id, node);
      } else {
        f.heap.emplace_back(node->id, node);
        std::push_heap(f.heap.begin(), f.heap.end());
      }
    }
    if (!gradient.defined()) return;
    const auto at = static_cast<uint32_t>(f.contributions.size());
    f.contributions.push_back({std::move(gradient), output, Frontier::none});
    Frontier::Slot& s = f.slots[slot];
    (s.first == Frontier::none ? s.first : f.contributions[s.last].next) = at;
    s.last = at;
  }

  /// The gradient of an input, if an earlier walk has found it.
  const Edge* known(const Node* node, uint32_t output) const {
    return fresh_ ? nullptr : table_.find(node, output);
  }

  /// All contributions to an output as one gradient, which the table then holds.
  Variable total(Node* node, uint32_t output, uint32_t slot) {
    if (const Edge* gradient = known(node, output)) return gradient->variable();
    Frontier& f = *frontier_;
    Variable sum;
    std::vector<Variable> more;
    for (uint32_t at = f.slots[slot].first; at != Frontier::none; at = f.contributions[at].next) {
      Frontier::Contribution& part = f.contributions[at];
      if (part.output != output) continue;
      if (!sum.defined()) {
        sum = std::move(part.gradient);
      } else {
        if (more.empty()) more.push_back(sum);
        more.push_back(std::move(part.gradient));
      }
    }
    if (!sum.defined()) return {};
    if (!more.empty()) {
      const BuildScope now(backward_at(node->where));
      sum = add_all(more);
    }
    run_.push_back({Edge(node, output), node->id, output, Edge(sum),
                    ValuePin(is_trainable(node->op()) ? sum.node() : nullptr)});
    return sum;
  }

  template <class Predicate>
  void step(Node& node, const SmallVector<Variable, 1>& gradients, const Predicate& toward) {
    uint64_t wanted = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      Node* input = node.inputs[i].node();
      if (!toward(*input) || !is_real(node.inputs[i].spec().dtype)) continue;
      if (known(input, node.inputs[i].output()))
        add(input, 0, {});  // only what is below may be missing
      else
        wanted |= uint64_t{1} << (i < 63 ? i : 63);
    }
    if (!wanted) return;
    if (std::none_of(gradients.begin(), gradients.end(), [](const Variable& g) { return g.defined(); }))
      return;
    check_unchanged(node);
    const BuildScope now(backward_at(node.where));
    Gradients results = located(node.where, [&] {
      return node.op().gradient(GradientRule(node, {gradients.data(), gradients.size()}, wanted));
    });
    if (results.size() != node.inputs.size())
      throw Error(fmt::format("{}: the gradient rule gave {} gradients for {} inputs", node.op().name(),
                              results.size(), node.inputs.size()));
    for (size_t i = 0; i < results.size(); ++i) {
      if (!((wanted >> (i < 63 ? i : 63)) & 1) || !results[i].defined()) continue;
      const Edge& input = node.inputs[i];
      if (i >= 63 && (!toward(*input.node()) || known(input.node(), input.output()))) continue;
      add(input.node(), input.output(), fitted(std::move(results[i]), input));
    }
  }

  /// A rule that reads a leaf which has been updated since would compute the gradient at another point.
  static void check_unchanged(const Node& node) {
    if (node.lazy || build_context().lazy) return;  // recomputed before it is read
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Node& leaf = *node.inputs[i].node();
      if (leaf.is_leaf() && leaf.stamp > std::max(node.id, node.stamp) &&
          node.op().traits().gradient_reads.contains(i))
        throw Error(fmt::format(
            "{}: the {} it used ({}:{}) has been updated since; ask for gradients before update()",
            node.op().name(), leaf.op().name(), leaf.where.file_name(), leaf.where.line()));
    }
  }

  GradientTable& table_;
  const bool fresh_;
  bool nested_ = false;
  const uint64_t id_ = Node::next_id();
  std::unique_ptr<Frontier> frontier_;
  GradientTable::Run run_;
};

void check_root(const Variable& root, std::string_view what) {
  if (!root.defined()) throw Error(fmt::format("{}: the Variable is undefined", what));
  if (!is_real(root.dtype()))
    throw TypeError(fmt::format("{}: only reals have gradients, this is {} of shape {}", what,
                                name(root.dtype()), root.shape().str()));
}

/// The nodes of the tree below `root` that are made of `x`.
NodeMap nodes_made_of(Node* root, const Node* x) {
  std::vector<Node*> nodes;
  TreeWalk walk(root);
  while (Node* node = walk.next()) {
    if (node->id < x->id) continue;
    nodes.push_back(node);
    walk.enter_inputs(*node);
  }
  sort_by_age(nodes);
  NodeMap result;
  for (Node* node : nodes) {
    const bool made =
        node == x || (!node->stops_gradient &&
                      std::any_of(node->inputs.begin(), node->inputs.end(), [&](const Edge& input) {
                        return result.find(input.node()) != NodeMap::none;
                      }));
    if (made) result.insert(node, 0);
  }
  return result;
}

/// Turns the gradients of leaves into leaves and lets go of everything between them and the root.
void clear_buffers(const Variable& root, GradientRecord& record) {
  if (root.node()->lazy) return;  // recomputed in each step
  std::vector<std::pair<Variable, Variable>> kept;
  record.gradients.for_each([&](Node* node, uint32_t output, const Edge& gradient) {
    if (is_trainable(node->op())) kept.emplace_back(Variable(node, output), gradient.variable());
  });
  for (auto& [leaf, gradient] : kept) {
    ensure_value(*gradient.node());
    if (!gradient.node()->is_leaf()) gradient.node()->cut(constant_op());
  }
  record.gradients.clear();
  std::sort(kept.begin(), kept.end(),
            [](const auto& a, const auto& b) { return a.first.node()->id > b.first.node()->id; });
  GradientTable::Run run;
  for (auto& [leaf, gradient] : kept)
    run.push_back({Edge(leaf), leaf.node()->id, leaf.output(), Edge(gradient), ValuePin(gradient.node())});
  record.gradients.add(std::move(run));
  if (!root.node()->is_leaf()) root.node()->cut(constant_op());
}

}  // namespace

GradientRecord& differentiate(const Variable& root) {
  check_root(root, "backward");
  GradientRecord& record = record_of(*root.node());
  if (!record.complete) {
    if (root.node()->needs_gradient)
      BackwardPass(root, record.gradients, [](const Node& node) { return node.needs_gradient; });
    record.complete = true;
  }
  return record;
}

namespace {

std::vector<std::pair<Variable, Variable>> of_parameters(const GradientTable& table) {
  std::vector<std::pair<Variable, Variable>> result;
  table.for_each([&](Node* node, uint32_t output, const Edge& gradient) {
    if (is_parameter(node->op())) result.emplace_back(Variable(node, output), gradient.variable());
  });
  std::sort(result.begin(), result.end(),
            [](const auto& a, const auto& b) { return a.first.node()->id < b.first.node()->id; });
  return result;
}

}  // namespace

std::vector<std::pair<Variable, Variable>> new_parameter_gradients(const Variable& root) {
  check_root(root, "get_executor");
  GradientTable table;
  if (root.node()->needs_gradient)
    BackwardPass(root, table, [](const Node& node) { return node.needs_gradient; });
  return of_parameters(table);
}

std::vector<std::pair<Variable, Variable>> parameter_gradients(const Variable& root) {
  return of_parameters(differentiate(root).gradients);
}

Variable Variable::backward(BackwardOptions options, Where where) const {
  return located(where, [&] {
    BuildContext without_activations = build_context();
    without_activations.without_activations = true;
    const BuildScope now(without_activations);
    GradientRecord& record = differentiate(*this);
    if (node()->lazy && node()->has_value()) {
      std::vector<Variable> gradients;
      record.gradients.for_each([&](Node* node, uint32_t, const Edge& gradient) {
        if (is_trainable(node->op())) gradients.push_back(gradient.variable());
      });
      evaluate_at(gradients, *node());
    }
    if (options.clear_buffers) clear_buffers(*this, record);
    return *this;
  });
}

Variable Variable::gradient(const Variable& x, Where where) const {
  return located(where, [&]() -> Variable {
    check_root(*this, "gradient");
    if (!x.defined()) throw Error("gradient: the Variable to differentiate by is undefined");
    GradientRecord& record = record_of(*node());
    const Edge* known = record.gradients.find(x.node(), x.output());
    if (!known) {
      const NodeMap path = nodes_made_of(node(), x.node());
      if (path.find(node()) == NodeMap::none)
        throw Error(fmt::format(
            "gradient: this Variable ({}, shape {}) is not made of the one asked for ({}, shape {})",
            node()->op().name(), shape().str(), x.node()->op().name(), x.shape().str()));
      if (is_trainable(x.node()->op()) && !record.complete)
        differentiate(*this);
      else
        BackwardPass(*this, record.gradients,
                     [&](const Node& node) { return path.find(&node) != NodeMap::none; });
      known = record.gradients.find(x.node(), x.output());
    }
    if (!known) {  // `x` is below, but no path to it has a derivative
      const Variable zero = broadcast_like(Variable(full({}, 0, x.dtype()).to(x.device()), where), x);
      GradientTable::Run run;
      run.push_back({Edge(x), x.node()->id, x.output(), Edge(zero), {}});
      record.gradients.add(std::move(run));
      known = record.gradients.find(x.node(), x.output());
    }
    Variable gradient = known->variable();
    if (!gradient.node()->lazy)
      ensure_value(*gradient.node());  // a live handle keeps it from here on
    else if (node()->has_value())
      evaluate_at({gradient}, *node());  // of the step that this shows
    return gradient;
  });
}

}  // namespace espalier
