// BackwardPass: gradients from a root towards the leaves.
#pragma once
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "espalier/core/assignment_ops.h"
#include "espalier/core/autograd.h"
#include "espalier/core/deferred/batch.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/frontier.h"
#include "espalier/core/gradient_rule.h"
#include "espalier/core/tree.h"
#include "espalier/core/values_later.h"

namespace espalier {

/// Undoes a broadcast; the only place that does. Downstream of a feed, an axis of size 1 in one batch may be
/// broadcast in another.
inline Variable fitted(Variable gradient, const Edge& input) {
  const Shape& shape = input.spec().shape;
  if (is_deferred(*gradient.node()) && gradient.shape() == shape) return gradient;  // also if it is open
  const bool settled = !gradient.node()->lazy || std::find(shape.begin(), shape.end(), 1) == shape.end();
  if (settled && gradient.shape() == shape) return gradient;
  return sum_to_like(gradient, input.variable());
}

/// Whether gradients go to the batches that have computed nodes, or to these nodes themselves.
enum class Batches : bool { pass_by, follow };

/// What a gradient of an input goes to.
inline Edge target_of(const Edge& input, Batches batches) {
  const Node& node = *input.node();
  return node.batch && batches == Batches::follow ? node.batch->outputs[input.output()] : input;
}

/// One walk from a root towards the leaves, against the order of writing.
class BackwardPass {
 public:
  /// `toward` says of a node whether the gradients wanted pass through it. While this lives, the values of
  /// the gradients of `ends` stay, as those of parameters do beyond it.
  template <class Predicate>
  BackwardPass(const Variable& root, GradientTable& table, Batches batches, const Predicate& toward,
               std::span<const Variable> ends = {}, const Variable& root_gradient = {})
      : table_(table), batches_(batches), ends_(ends), fresh_(table.empty()) {
    static thread_local std::unique_ptr<Frontier> kept;
    const Nesting nesting(nested_);
    if (root.node()->lazy) snapshot_ = root.node()->rare().snapshot;
    frontier_ = kept ? std::move(kept) : std::make_unique<Frontier>();
    add(root.node(), root.output(), root_gradient.defined() ? root_gradient : seed(root));
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
  static BuildContext backward_at(const CallSite& where) {
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
    if (at == s.first || node->outputs.size() > 1) return;
    const int64_t bytes = pending_bytes(f.contributions[at].gradient);
    if ((s.bytes += bytes) > std::max(most_pending_bytes, bytes)) add_contributions(s);
  }

  /// What a contribution keeps in memory: one that is deferred, its operands.
  static int64_t pending_bytes(const Variable& gradient) {
    const Node& node = *gradient.node();
    if (!is_deferred(node)) return Edge(gradient).spec().bytes();
    int64_t bytes = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i)
      if (node.op().reads_elements(i)) bytes += node.inputs[i].spec().bytes();
    return bytes;
  }

  /// Adds the contributions behind the first one to that, in its buffer if possible.
  void add_contributions(Frontier::Slot& slot) {
    Frontier& f = *frontier_;
    Frontier::Contribution& first = f.contributions[slot.first];
    std::vector<Variable> others;
    for (uint32_t at = first.next; at != Frontier::none; at = f.contributions[at].next)
      others.push_back(std::move(f.contributions[at].gradient));
    first.gradient = add_all_into(std::move(first.gradient), others);
    first.next = Frontier::none;
    slot.last = slot.first;
    slot.bytes = 0;
  }

  /// Notes a product that is to be added to a gradient which has a contribution already. Operands wait for
  /// others, so that small products become one, but only as long as they take little memory.
  void add_product(Node* node, GradientProduct product) {
    Frontier& f = *frontier_;
    Frontier::Slot& slot = f.slots[slot_of(node)];
    if (slot.products == Frontier::none) {
      slot.products = static_cast<uint32_t>(f.products.size());
      f.products.emplace_back();
    }
    Frontier::Products& own = f.products[slot.products];
    if (!own.terms.empty() && own.terms[0].form != product.form) add_products(slot);
    own.bytes += Edge(product.a).spec().bytes() + Edge(product.b).spec().bytes();
    own.rows += product.a.shape()[product.form.transpose_a ? 0 : 1];
    own.terms.push_back(std::move(product));
    if (own.rows >= enough_rows || own.bytes > most_pending_bytes) add_products(slot);
  }
  void add_products(Frontier::Slot& slot) {
    Frontier::Products& own = frontier_->products[slot.products];
    Variable& first = frontier_->contributions[slot.first].gradient;
    first = sum_of_products(std::move(first), own.terms);
    own = {};
  }

  /// The gradient of an input, if an earlier walk has found it.
  const Edge* known(const Node* node, uint32_t output) const {
    return fresh_ ? nullptr : table_.find(node, output);
  }

  /// All contributions to an output as one gradient, which the table then holds.
  Variable total(Node* node, uint32_t output, uint32_t slot) {
    if (const Edge* gradient = known(node, output)) return gradient->variable();
    Frontier& f = *frontier_;
    if (const uint32_t products = f.slots[slot].products;
        products != Frontier::none && !f.products[products].terms.empty()) {
      const BuildScope now(backward_at(node->where));
      add_products(f.slots[slot]);
    }
    Variable sum;
    std::vector<Variable> others;
    for (uint32_t at = f.slots[slot].first; at != Frontier::none; at = f.contributions[at].next) {
      Frontier::Contribution& part = f.contributions[at];
      if (part.output != output) continue;
      if (!sum.defined())
        sum = std::move(part.gradient);
      else
        others.push_back(std::move(part.gradient));
    }
    if (!sum.defined()) return {};
    if (!others.empty()) {
      const BuildScope now(backward_at(node->where));
      sum = add_all_into(std::move(sum), others);
    }
    if (std::ranges::any_of(ends_, [&](const Variable& end) { return end.node() == node; }))
      found_.push_back(sum);
    run_.push_back({Edge(node, output), node->id, output, Edge(sum),
                    ValuePin(is_trainable(node->op()) ? sum.node() : nullptr)});
    return sum;
  }

  template <class Predicate>
  void step(Node& node, const SmallVector<Variable, 1>& gradients, const Predicate& toward) {
    uint64_t wanted = 0, adds_up = 0;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const Edge target = target_of(node.inputs[i], batches_);
      Node* input = target.node();
      if (!toward(*input) || !is_real(node.inputs[i].spec().dtype)) continue;
      if (known(input, target.output()))
        add(input, 0, {});  // only what is below may be missing
      else
        wanted |= uint64_t{1} << (i < 63 ? i : 63);
      if (i < 63 && adds_up_at(node.inputs[i])) adds_up |= uint64_t{1} << i;
    }
    if (!wanted) return;
    if (std::none_of(gradients.begin(), gradients.end(), [](const Variable& g) { return g.defined(); }))
      return;
    const BuildScope now(backward_at(node.where));
    const auto former = former_inputs(node);
    std::vector<std::pair<size_t, GradientProduct>> products;
    Gradients results = located(node.where, [&] {
      return node.op().gradient(
          GradientRule(node, {gradients.data(), gradients.size()}, wanted, adds_up, products, former));
    });
    if (results.size() != node.inputs.size())
      throw Error(fmt::format("{}: the gradient rule gave {} gradients for {} inputs", node.op().name(),
                              results.size(), node.inputs.size()));
    for (size_t i = 0; i < results.size(); ++i) {
      if (!((wanted >> (i < 63 ? i : 63)) & 1) || !results[i].defined()) continue;
      const Edge& input = node.inputs[i];
      const Edge target = target_of(input, batches_);
      if (i >= 63 && (!toward(*target.node()) || known(target.node(), target.output()))) continue;
      Variable gradient = fitted(std::move(results[i]), input);
      if (target.node() != input.node()) gradient = put_into_batch(*input.node(), input.output(), gradient);
      add(target.node(), target.output(), std::move(gradient));
    }
    for (auto& [i, product] : products)
      add_product(target_of(node.inputs[i], batches_).node(), std::move(product));
  }

  /// Whether the gradient of an input has a contribution already, and products need not be fitted to it.
  bool adds_up_at(const Edge& input_edge) const {
    const Edge input = target_of(input_edge, batches_);
    if (input.node() != input_edge.node() && input_edge.node()->batch->form != BatchForm::whole) return false;
    const Shape& shape = input.spec().shape;
    if (shape.rank() != 2 || input.node()->outputs.size() != 1 || std::ranges::find(shape, 1) != shape.end())
      return false;
    const uint32_t slot = slot_of(input.node());
    return slot != Frontier::none && frontier_->slots[slot].first != Frontier::none;
  }

  /// The inputs that the rule reads and that have been assigned since, as they were: the gradient is that of
  /// the forward pass that ran. Throws Error where the former value is gone.
  std::vector<std::pair<size_t, Variable>> former_inputs(const Node& node) const {
    std::vector<std::pair<size_t, Variable>> former;
    if (build_context().lazy) return former;  // computed later, with all that it reads
    const InputSet read = node.op().traits().gradient_reads;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      Node& leaf = *node.inputs[i].node();
      if (!read.contains(i) || !leaf.may_change()) continue;
      if (leaf.is_leaf() && snapshot_ && snapshot_->assigned_to(&leaf)) {
        former.emplace_back(i, value_in_step(leaf));
        continue;
      }
      const uint64_t time = std::max(node.id, node.version);
      if (node.lazy || leaf.version <= time) continue;  // lazy nodes are computed again before they are read
      if (leaf.is_leaf() && !is_trainable(leaf.op()))
        if (Variable value = former_value(leaf, time); value.defined()) {
          former.emplace_back(i, std::move(value));
          continue;
        }
      const std::string_view called = node.where.called();
      throw Error(fmt::format("{}: the {} it used ({}:{}) has been {}",
                              called.empty() ? node.op().name() : called, leaf.op().name(),
                              leaf.where.file_name(), leaf.where.line(), what_happened(leaf)));
    }
    return former;
  }

  static std::string_view what_happened(const Node& leaf) {
    if (!leaf.is_leaf())
      return "drawn anew since, for a step of another tree; ask for gradients before that step";
    if (is_trainable(leaf.op()))
      return "updated since; ask for gradients before update(), or write the expression again";
    return "updated since; ask for gradients before the update, and for derivatives of gradients before the "
           "forward() whose step assigns it by with_assignment()";
  }

  /// As long as the parts of one gradient take no more, they wait to be added up together.
  static constexpr int64_t most_pending_bytes = int64_t{1} << 20;
  /// Products with so long an inner axis together are worth a sum of their own.
  static constexpr int64_t enough_rows = 256;

  GradientTable& table_;
  const Batches batches_;
  const std::span<const Variable> ends_;
  std::vector<Variable> found_;  // handles keep their values
  const bool fresh_;
  std::shared_ptr<const FeedSnapshot> snapshot_;  // the step that the root shows
  bool nested_ = false;
  const uint64_t id_ = Node::next_id();
  std::unique_ptr<Frontier> frontier_;
  GradientTable::Run run_;
};

}  // namespace espalier
