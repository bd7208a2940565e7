// Convolutional parts of a graph with the channels as the last axis: oneDNN, and cuDNN with 16 bits, read and
// write that layout in place, sums over all other axes are sums of columns, and pooling runs along channels.
#include "espalier/core/channels_last.h"

#include <algorithm>
#include <map>
#include <optional>

#include "espalier/core/op_registry.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// The order of axes that moves the channels there from place 1.
Dims to_last(size_t rank) {
  Dims order{0};
  for (size_t i = 2; i < rank; ++i) order.push_back(static_cast<int64_t>(i));
  order.push_back(1);
  return order;
}
Dims from_last(size_t rank) {
  Dims order{0, static_cast<int64_t>(rank) - 1};
  for (size_t i = 1; i + 1 < rank; ++i) order.push_back(static_cast<int64_t>(i));
  return order;
}
std::vector<int64_t> as_list(const Dims& dims) { return {dims.begin(), dims.end()}; }
OpPtr reshape_to(const Shape& shape) { return make_op("reshape", {{"shape", as_list(shape.dims())}}); }

/// Whether a shape is `to` behind axes of size 1.
bool ends_with(const Shape& shape, const Shape& to) {
  if (shape.rank() < to.rank()) return false;
  const auto* const own = shape.end() - to.rank();
  return std::all_of(shape.begin(), own, [](int64_t size) { return size == 1; }) &&
         std::equal(own, shape.end(), to.begin());
}

/// Whether moving the operands of a node, too, pays: on a CPU oneDNN computes float32, and bfloat16 where the
/// processor does, and on a GPU tensor cores compute 16 bits.
bool is_worth_moving(const GraphNode& n, DeviceType device) {
  const DType dtype = n.outputs[0].dtype;
  return n.op->traits().prefers_channels_last && !n.op->traits().runs_on_host &&
         (device == DeviceType::cpu ? dtype == DType::float32 || dtype == DType::bfloat16 : is_half(dtype));
}

/// Each value is computed with channels either second or last; readers of the other order get a view.
class ChannelsLast {
 public:
  explicit ChannelsLast(Graph& graph)
      : graph_(graph), rewriter_(graph), is_moved_(graph.nodes.size(), false) {}

  /// Returns false, and leaves the graph alone, if there is nothing to be moved.
  bool run() {
    bool changed = false;
    for (uint32_t i = 0; i < is_moved_.size(); ++i) {
      here_ = i;
      if (move(i))
        changed = true;
      else
        for (ValueRef& input : rewriter_.node(i).inputs) input = second(input);
    }
    if (!changed) return false;
    here_.reset();
    for (ValueRef& result : graph_.results) result = second(result);
    rewriter_.finish();
    dead_nodes(graph_);
    return true;
  }

 private:
  using Inputs = SmallVector<ValueRef, 2>;

  bool is_last(ValueRef v) const { return is_moved_[v.node]; }
  /// With the channels second.
  Shape shape(ValueRef v) {
    const Shape& now = rewriter_.spec(v).shape;
    return is_last(v) ? with_channels_second(now) : now;
  }

  /// Rewrites a node for operands with the channels last, if it is one that can and an operand is there.
  bool move(uint32_t i) {
    const GraphNode& n = rewriter_.node(i);
    const OpTraits& traits = n.op->traits();
    if (n.op->is_leaf() || n.is_constant() || traits.effect != Effect::none || traits.runs_on_host ||
        n.outputs.size() != 1)
      return false;
    if (traits.prefers_channels_last ? !is_worth_moving(n, graph_.device)
                                     : std::ranges::none_of(n.inputs, [&](ValueRef v) { return is_last(v); }))
      return false;
    return n.op->is_pointwise() ? move_pointwise(i) : move_by_op(i);
  }

  bool move_pointwise(uint32_t i) {
    const GraphNode& n = rewriter_.node(i);
    const Shape& out = n.outputs[0].shape;
    if (std::ranges::none_of(n.inputs, [&](ValueRef v) { return is_last(v) && shape(v) == out; }))
      return false;
    Inputs inputs;
    for (const ValueRef& v : n.inputs) inputs.push_back(last_of_rank(v, out.rank()));
    set(i, n.op, std::move(inputs), {n.outputs[0].dtype, with_channels_last(out)}, true);
    return true;
  }

  /// Asks the op for one that computes the same with the channels last.
  bool move_by_op(uint32_t i) {
    const GraphNode& n = rewriter_.node(i);
    const Spec before = n.outputs[0];
    Specs specs;
    for (const ValueRef& v : n.inputs) specs.push_back({rewriter_.spec(v).dtype, shape(v)});
    InputSpecs known;
    for (const Spec& spec : specs) known.push_back(&spec);
    const ChannelsLastOp to = n.op->with_channels_last(known, before);
    if (!to.op) return false;
    const size_t count = std::min(to.inputs, n.inputs.size());
    InputSpecs moved;
    bool any = n.op->traits().prefers_channels_last;
    for (size_t k = 0; k < count; ++k) {
      if (to.moved.contains(k)) specs[k].shape = with_channels_last(specs[k].shape);
      moved.push_back(&specs[k]);
      any |= to.moved.contains(k) && is_last(n.inputs[k]);
    }
    if (!any) return false;
    const Spec made = to.op->infer(moved)[0];
    const Shape kept = to.moves_output ? with_channels_second(made.shape) : made.shape;
    if (made.dtype != before.dtype || !ends_with(kept, before.shape)) return false;
    Inputs inputs;
    for (size_t k = 0; k < count; ++k)
      inputs.push_back(to.moved.contains(k) ? last(n.inputs[k]) : second(n.inputs[k]));
    if (kept.rank() == before.shape.rank()) {
      set(i, to.op, std::move(inputs), made, to.moves_output);
    } else {
      ValueRef whole = insert(i, to.op, std::move(inputs), made);
      if (to.moves_output) whole = transposed(whole, from_last(kept.rank()));
      set(i, reshape_to(before.shape), {whole}, before, false);
    }
    return true;
  }

  void set(uint32_t i, OpPtr op, Inputs inputs, const Spec& output, bool last) {
    GraphNode& n = rewriter_.node(i);
    n.op = std::move(op);
    n.inputs = std::move(inputs);
    n.outputs = {output};
    is_moved_[i] = last;
  }

  ValueRef second(ValueRef v) {
    return is_last(v) ? once(v, 0, [&] { return transposed(v, from_last(shape(v).rank())); }) : v;
  }
  ValueRef last(ValueRef v) {
    if (is_last(v)) return v;
    return once(v, shape(v).rank(), [&] { return transposed(v, to_last(shape(v).rank())); });
  }
  /// For an op that repeats its operands to that rank.
  ValueRef last_of_rank(ValueRef v, size_t rank) {
    const Shape own = shape(v);
    if (own.rank() == rank) return last(v);
    const ValueRef from = second(v);
    if (own.elements() == 1) return from;
    return once(from, rank, [&] {
      Shape whole{Dims(rank - own.rank(), 1)};
      whole.dims().append(own.begin(), own.end());
      const Spec spec{rewriter_.spec(from).dtype, whole};
      return transposed(insert(from.node, reshape_to(whole), {from}, spec), to_last(rank));
    });
  }
  template <class F>
  ValueRef once(ValueRef v, size_t rank, F&& make) {
    const auto [at, fresh] = views_.try_emplace({v, rank});
    if (fresh) at->second = make();
    return at->second;
  }

  ValueRef transposed(ValueRef v, const Dims& order) {
    const Spec& from = rewriter_.spec(v);
    Spec to{from.dtype, Shape()};
    for (const int64_t axis : order) to.shape.dims().push_back(from.shape[axis]);
    return insert(v.node, make_op("transpose", {{"order", as_list(order)}}), {v}, to);
  }
  /// Adds a node before the one that is being rewritten, with the tag and the line of node `like`.
  ValueRef insert(uint32_t like, OpPtr op, Inputs inputs, const Spec& output) {
    GraphNode n;
    n.op = std::move(op);
    n.inputs = std::move(inputs);
    n.outputs = {output};
    n.tag = rewriter_.node(like).tag;
    n.where = rewriter_.node(like).where;
    return {here_ ? rewriter_.add_before(*here_, std::move(n)) : rewriter_.add_last(std::move(n)), 0};
  }

  Graph& graph_;
  GraphRewriter rewriter_;
  std::vector<bool> is_moved_;    // by node: its value has the channels last
  std::optional<uint32_t> here_;  // views are inserted before this node; none: at the end
  std::map<std::pair<ValueRef, size_t>, ValueRef> views_;
};

}  // namespace

bool channels_last(Graph& graph, const CompileOptions&) {
  const auto is_worth = [&](const GraphNode& n) { return is_worth_moving(n, graph.device); };
  if (std::ranges::none_of(graph.nodes, is_worth)) return false;
  return ChannelsLast(graph).run();
}

}  // namespace espalier
