// Node: one application of an op. Users hold Variables; this is what they point to.
//
// A tree belongs to one thread at a time; leaves may be shared by several.
#pragma once
#include <atomic>
#include <map>
#include <memory>
#include <source_location>
#include <string_view>
#include <utility>
#include <vector>

#include "espalier/core/call_site.h"
#include "espalier/core/error.h"
#include "espalier/core/op.h"
#include "espalier/core/scoped_value.h"
#include "espalier/core/variable.h"

namespace espalier {

enum class Tag : uint8_t { forward, backward, update };
std::string_view name(Tag tag);

/// A node's hold on an output of another. It keeps the node, but not its value.
class Edge {
 public:
  Edge() = default;
  Edge(Node* node, uint32_t output);
  explicit Edge(const Variable& v) : Edge(v.node(), v.output()) {}
  Edge(const Edge& other) : Edge(other.node_, other.output_) {}
  Edge(Edge&& other) noexcept : node_(std::exchange(other.node_, nullptr)), output_(other.output_) {}
  Edge& operator=(Edge other) noexcept {
    std::swap(node_, other.node_);
    std::swap(output_, other.output_);
    return *this;
  }
  ~Edge();

  Node* node() const { return node_; }
  uint32_t output() const { return output_; }
  Variable variable() const { return node_ ? Variable(node_, output_) : Variable(); }
  const Spec& spec() const;
  Tensor& value() const;

 private:
  Node* node_ = nullptr;
  uint32_t output_ = 0;
};

struct Output {
  Spec spec;
  Tensor value;
};

/// A state that the forward pass of a step has assigned: all that is computed for this step reads `before`.
struct AssignedState {
  Edge leaf;
  Tensor before;
  uint64_t version;  ///< of the value before
  uint64_t order;    ///< the id of the node that orders the assignment
  std::source_location where;
};

/// A step of one or more feeds, as one evaluation showed it.
struct FeedSnapshot {
  uint64_t version = 0;
  int64_t step = 0;
  std::map<const Feed*, int64_t> epochs;
  mutable std::vector<AssignedState> assigned = {};  ///< added by the evaluations of the step

  /// How the step has assigned a leaf; null if it has not.
  const AssignedState* assigned_to(const Node* leaf) const {
    for (const AssignedState& state : assigned)
      if (state.leaf.node() == leaf) return &state;
    return nullptr;
  }
};

/// What an eager assignment of a state has replaced, for gradients of what read it.
struct FormerValue {
  uint64_t since, until;  ///< on the scale of ids
  Tensor value;
};

/// What has computed several nodes at once; see core/deferred/batch.h.
struct Batch;

/// The gradients and updates that were asked of a root. It lives as long as a handle on the root does, and
/// holds edges only, so that it closes no circle.
struct GradientRecord;
struct GradientRecordDeleter {
  void operator()(GradientRecord* record) const;
};

class Node : public NodeCounts {
 public:
  /// The next number in the order in which things are written and leaves are assigned.
  static uint64_t next_id();
  Node(OpPtr op, const CallSite& where);
  ~Node();
  static void* operator new(size_t bytes);
  static void operator delete(void* node, size_t bytes) noexcept;

  void release() noexcept;
  const Op& op() const { return *op_; }
  bool is_leaf() const { return op_->is_leaf(); }
  /// Whether its value may be replaced while eager nodes keep theirs, which were computed from it.
  bool may_change() const { return is_leaf() || op_->is_random(); }
  /// Whether one edge is all that holds it.
  bool held_once() const { return references_.load(std::memory_order_relaxed) == 1 && !has_handles(); }
  bool has_value() const { return !away.load(std::memory_order_acquire) && outputs[0].value.defined(); }
  /// Whether the value may still be read: by a handle, or by a gradient rule.
  bool value_wanted() const;
  /// Whether one handle is all that keeps the value.
  bool value_ends_with_handle() const {
    return handles_.load(std::memory_order_relaxed) == 1 &&
           value_uses_.load(std::memory_order_relaxed) == 0 && !op_->is_leaf() && !lazy &&
           !(needs_gradient && op_->traits().gradient_reads_output);
  }
  void clear_value();
  /// Counts this node among the users of its inputs' values, as far as its gradient rule reads them.
  void use_inputs() {
    if (needs_gradient) use_inputs(op_->traits().gradient_reads);
  }
  /// The same for those inputs: their values stay as long as this node does.
  void use_inputs(InputSet read);
  /// Keeps the value until as many calls of `drop_value_use` have come.
  void use_value() { count_up(value_uses_); }
  int32_t value_uses() const { return value_uses_.load(std::memory_order_relaxed); }
  /// Whether its gradient rule is counted among the users of that input's value.
  bool uses_input(size_t i) const { return (used_inputs_ >> (i < 63 ? i : 63)) & 1; }
  void drop_value_use() noexcept;
  /// Lets go of all inputs: what remains is a leaf with `op`.
  void cut(OpPtr op);

  // What building, walking and releasing touch comes first, and together.
  OpPtr op_;
  uint64_t id;
  uint64_t walk = 0;       ///< the walk of autograd that visited this node last
  uint32_t walk_slot = 0;  ///< and what it knows of it
  uint32_t depth = 0;
  Tag tag = Tag::forward;
  bool lazy = false;                ///< computed when asked, since it is downstream of a feed (or an update)
  bool needs_gradient = false;      ///< a parameter or variable is among the leaves
  std::atomic<bool> bound = false;  ///< leaves: the value lies in memory that plans write in place
  bool stops_gradient = false;      ///< written under NoGrad
  bool drawn = false;               ///< random nodes: `rare->stream` is valid
  bool frozen = false;              ///< parameters: not trained (set_trainable)
  bool waits = false;               ///< made while a Deferred lives, and not computed yet
  SmallVector<Edge, 2> inputs;
  CallSite where;
  /// Leaves: when the value was last replaced. Lazy nodes: the evaluation that computed it. Both on the scale
  /// of ids.
  uint64_t version = 0;
  SmallVector<Output, 1> outputs;
  std::unique_ptr<GradientRecord, GradientRecordDeleter> record;

  /// What few nodes have.
  struct Rare {
    RandomStream stream{};  ///< random nodes: the stream that was drawn
    /// Observed Variables downstream of a feed: the next step to show, and the epoch it belongs to.
    int64_t cursor = 0;
    int64_t cursor_epoch = -1;
    bool step_failed = false;    ///< the last step threw, and the values are of the one before
    bool sizes_checked = false;  ///< check_open_sizes has seen the tree below
    /// Sources and observed Variables: what the value shows.
    std::shared_ptr<const FeedSnapshot> snapshot;
    /// Leaves that are away: their value, in an executor's mirror. Undefined if another process has it.
    Tensor elsewhere;
    /// Nodes that have ordered an eager assignment keep what it has replaced; the leaf finds it.
    std::shared_ptr<const FormerValue> replaced;
    std::vector<std::weak_ptr<const FormerValue>> former;
    /// Nodes with open axes: the shapes of all outputs if these had another size, and for users.
    std::vector<Shape> other_shapes, user_shapes;
    bool sizes_unknown = false;  ///< which axes are open could not be told
  };
  const Rare* rare_if_any() const { return rare_.get(); }
  Rare& rare() {
    if (!rare_) rare_.reset(new Rare);
    return *rare_;
  }

 private:
  friend class NodeCounts;
  std::atomic<int32_t> value_uses_{0};
  uint64_t used_inputs_ = 0;  // bit i: input i's value is used; the last bit stands for all further ones
  std::unique_ptr<Rare> rare_;

 public:
  std::shared_ptr<const Batch> batch;  ///< what a Deferred has computed in place of this node
  uint32_t place = 0;                  ///< nodes that wait: in the list of them; of a batch: the row
  /// Leaves: the value is not here, but copied when it is asked for, also by several threads at once.
  std::atomic<bool> away = false;
};

inline Edge::Edge(Node* node, uint32_t output) : node_(node), output_(output) {
  if (node_) node_->retain();
}
inline Edge::~Edge() {
  if (node_) node_->release();
}
inline const Spec& Edge::spec() const { return node_->outputs[output_].spec; }
inline Tensor& Edge::value() const { return node_->outputs[output_].value; }
inline Variable::Variable(Node* node, uint32_t output) noexcept : node_(node), output_(output) { retain(); }

/// How nodes are being made in this thread.
struct BuildContext {
  Tag tag = Tag::forward;
  bool no_grad = false;
  bool without_activations =
      false;          ///< nodes keep no values for gradients of their own; those would be computed again
  bool lazy = false;  ///< nodes wait to be asked, whatever they are made of
  const CallSite* where = nullptr;  ///< the user's call, while a library function calls others
};
BuildContext& build_context();

/// Sets how nodes are made, for a scope.
class BuildScope {
 public:
  explicit BuildScope(const BuildContext& now) : scope_(build_context(), now) {}

 private:
  ScopedValue<BuildContext> scope_;
};

/// Nodes made while it lives carry the line `where` and the name of the function that constructs it, unless
/// an outer one lives already. `function`, a literal, is for functions that users do not call themselves: the
/// name that they know, or "".
class CallScope {
 public:
  explicit CallScope(const std::source_location& where, std::string_view function = {},
                     std::source_location own = std::source_location::current())
      : CallScope(CallSite(where, function.data() ? function.data() : own.function_name())) {}
  explicit CallScope(const CallSite& site) : CallScope(site, build_context().where) {}
  /// Its own, which build_context() has if no outer one lives.
  const CallSite& site() const { return site_; }

 private:
  CallScope(const CallSite& site, const CallSite*& now) : site_(site), scope_(now, now ? now : &site_) {}

  CallSite site_;
  ScopedValue<const CallSite*> scope_;
};

/// While it lives, nodes and errors carry their own lines, also within a CallScope: code of the user's runs,
/// which a library function has called, or nodes are computed that have lines of their own.
class OwnLines {
 public:
  OwnLines() : scope_(build_context().where, nullptr) {}

 private:
  ScopedValue<const CallSite*> scope_;
};

/// Runs a function of the user's that a library function calls: errors have the lines of the calls in it, and
/// `described()` at the end of their text.
template <class F, class Text>
decltype(auto) run_own_lines(F&& f, const Text& described) {
  const OwnLines lines;
  try {
    return f();
  } catch (Error& error) {
    error.add(described());
    throw;
  }
}

/// Adds a node to the tree; it is computed at once unless it is lazy. Throws what inference and kernel throw,
/// with the user's line. `last` marks inputs whose handles end with this call, bit by bit: their buffers may
/// be written over.
Variable apply(OpPtr op, std::span<const Variable* const> inputs, const CallSite& where, uint32_t last = 0);
inline Variable apply(OpPtr op, std::initializer_list<const Variable*> inputs, const CallSite& where,
                      uint32_t last = 0) {
  return apply(std::move(op), std::span(inputs.begin(), inputs.size()), where, last);
}

/// A leaf of that op.
Variable make_leaf(OpPtr op, const Tensor& value, const CallSite& where);
/// The ops of leaves.
OpPtr constant_op();
OpPtr number_op(detail::Number number);
OpPtr variable_op();
OpPtr parameter_op(std::string_view name);
OpPtr state_op(std::string_view name);
OpPtr source_op(std::shared_ptr<Feed> feed, size_t output);
bool is_parameter(const Op& op);
/// A parameter or a `variable`: a leaf whose gradient backward() builds.
bool is_trainable(const Op& op);
bool is_constant(const Op& op);
/// The number that a Variable was made from; null for other ops.
const detail::Number* number_of(const Op& op);
/// Whether a gradient is computed only when it is asked for, from operands that keep their values for it.
inline bool is_deferred(const Node& node) { return node.tag == Tag::backward && node.op().traits().deferred; }
/// Whether `backward` builds the gradient of this node: a `variable`, or a parameter that is not frozen.
bool is_trained(const Node& node);
/// A number that changes whenever a parameter is frozen or released; 0 before the first time.
uint64_t trainable_version();

/// The source Variables of a feed.
std::vector<Variable> source_variables(const std::shared_ptr<Feed>& feed, const std::source_location& where);

}  // namespace espalier
