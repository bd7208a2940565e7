// Convolutional parts of a graph with the channels as the last axis: oneDNN reads and writes that layout in
// place, sums over all other axes are sums of columns, and pooling runs along channels.
#include <algorithm>
#include <map>
#include <optional>

#include "espalier/core/op_names.h"
#include "espalier/core/op_registry.h"
#include "espalier/executor/graph/rewriter.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// The place of an axis of [batch, channels, sizes…] in [batch, sizes…, channels].
int64_t moved_axis(int64_t axis, size_t rank) {
  return axis == 0 ? 0 : axis == 1 ? static_cast<int64_t>(rank) - 1 : axis - 1;
}
Shape with_channels_last(const Shape& shape) {
  Shape result = shape;
  std::rotate(result.dims().begin() + 1, result.dims().begin() + 2, result.dims().end());
  return result;
}
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

/// The op with another value for one of its attributes.
OpPtr with(const Op& op, std::string_view name, AttributeValue value) {
  Attributes attributes = op.attributes();
  for (auto& [known, old] : attributes)
    if (known == name) old = std::move(value);
  return make_op(op.name(), attributes);
}

bool is_one_of(std::string_view name, std::initializer_list<std::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}
/// A convolution to be moved.
bool is_convolution(const GraphNode& n) {
  return is_one_of(n.op->name(), {"conv", "conv_transpose", "conv_kernels"}) &&
         !n.op->traits().runs_on_host && n.outputs[0].dtype == DType::float32 &&
         !attribute<bool>(*n.op, "channels_last");
}

/// Each value is computed with channels either second or last; readers of the other order get a view.
class ChannelsLast {
 public:
  explicit ChannelsLast(Graph& graph)
      : graph_(graph), before_(graph), rewriter_(graph), is_moved_(graph.nodes.size(), false) {}

  void run() {
    for (uint32_t i = 0; i < before_.nodes.size(); ++i) {
      here_ = i;
      if (!move(i))
        for (ValueRef& input : rewriter_.node(i).inputs) input = second(input);
    }
    here_.reset();
    for (ValueRef& result : graph_.results) result = second(result);
    rewriter_.finish();
    dead_nodes(graph_);
  }

 private:
  using Inputs = SmallVector<ValueRef, 2>;

  const Shape& shape(ValueRef v) const { return before_.spec(v).shape; }  ///< with the channels second
  bool is_last(ValueRef v) const { return is_moved_[v.node]; }
  bool any_last(const GraphNode& n) const {
    return std::any_of(n.inputs.begin(), n.inputs.end(), [&](ValueRef v) { return is_last(v); });
  }
  bool all_of_rank(const GraphNode& n, size_t rank) const {
    return std::all_of(n.inputs.begin(), n.inputs.end(), [&](ValueRef v) { return shape(v).rank() == rank; });
  }

  /// Rewrites a node for operands with the channels last, if it is one that can and an operand is there.
  bool move(uint32_t i) {
    const GraphNode& n = before_.nodes[i];
    const OpTraits& traits = n.op->traits();
    if (n.op->is_leaf() || n.is_constant() || traits.effect != Effect::none || traits.runs_on_host ||
        n.outputs.size() != 1)
      return false;
    if (is_convolution(n)) return move_convolution(i);
    if (!any_last(n)) return false;
    const std::string_view name = n.op->name();
    if (n.op->is_pointwise()) return move_pointwise(i);
    if (is_one_of(name, {"pool_argmax", "pool_sum", "pool_spread"})) return move_pooling(i);
    if (is_one_of(name, {"sum", "mean", "max", "min"})) return move_reduction(i);
    if (name == "sum_to_like") return move_sum_to_like(i);
    if (is_one_of(name,
                  {"reshape", "reshape_like", "flatten", "unsqueeze", "squeeze", "merge_axes", "unflatten"}))
      return move_reshape(i);
    if (is_one_of(name, {"concat", "concat_part", "slice", "slice_like", "pad_like", "pad_from_axis",
                         "pad_constant", "take_along_axis", "add_along_axis_like"}))
      return move_along_axis(i);
    return false;
  }

  bool move_convolution(uint32_t i) {
    const GraphNode& n = before_.nodes[i];
    const bool to_kernels = is_op(*n.op, "conv_kernels");
    Inputs inputs;
    for (size_t k = 0; k < n.inputs.size(); ++k)
      inputs.push_back(k == (to_kernels ? 2 : 1) ? second(n.inputs[k]) : last(n.inputs[k]));
    return set(i, with(*n.op, "channels_last", true), std::move(inputs), !to_kernels);
  }

  bool move_pointwise(uint32_t i) {
    const GraphNode& n = before_.nodes[i];
    const Shape& out = n.outputs[0].shape;
    const bool any_whole = std::any_of(n.inputs.begin(), n.inputs.end(),
                                       [&](ValueRef v) { return is_last(v) && shape(v) == out; });
    if (!any_whole) return false;
    Inputs inputs;
    for (const ValueRef& v : n.inputs) inputs.push_back(last_of_rank(v, out.rank()));
    return set(i, n.op, std::move(inputs), true);
  }

  bool move_pooling(uint32_t i) {
    const GraphNode& n = before_.nodes[i];
    const size_t rank = n.outputs[0].shape.rank();
    const auto pooled = [&](std::string_view list) {
      return attribute<std::vector<int64_t>>(*n.op, list).size();
    };
    if (pooled("kernel") + pooled("parts") + 2 != rank || attribute<bool>(*n.op, "channels_last"))
      return false;
    Inputs inputs;
    for (const ValueRef& v : n.inputs) inputs.push_back(last(v));
    return set(i, with(*n.op, "channels_last", true), std::move(inputs), true);
  }

  bool move_reduction(uint32_t i) {
    const GraphNode& n = before_.nodes[i];
    const size_t rank = shape(n.inputs[0]).rank();
    const auto axes = attribute<std::vector<int64_t>>(*n.op, "axes");
    const auto gone = Axes(axes).mask(rank, n.op->name());
    const bool keep = attribute<bool>(*n.op, "keep_dims");
    const bool sizes_left = std::find(gone.begin() + 2, gone.end(), false) != gone.end();
    // Without the reduced axes, the others are [channels, sizes…] or have one order only.
    const bool both_left = !keep && !gone[1] && sizes_left;
    if (both_left && gone[0]) return false;
    std::vector<int64_t> moved;
    for (size_t axis = 0; axis < rank; ++axis)
      if (gone[axis]) moved.push_back(moved_axis(static_cast<int64_t>(axis), rank));
    std::sort(moved.begin(), moved.end());
    return set(i, with(*n.op, "axes", std::move(moved)), {n.inputs[0]}, keep || both_left);
  }

  /// The sum keeps all axes; where `like` has fewer, a view leaves them out.
  bool move_sum_to_like(uint32_t i) {
    const GraphNode& n = before_.nodes[i];
    if (!is_last(n.inputs[0])) return false;
    const Shape &from = shape(n.inputs[0]), &to = n.outputs[0].shape;
    const size_t rank = from.rank(), added = rank - to.rank();
    Shape kept = from;
    std::vector<int64_t> axes;
    for (size_t axis = 0; axis < rank; ++axis)
      if (axis < added || to.dims()[axis - added] != from.dims()[axis]) {
        axes.push_back(moved_axis(static_cast<int64_t>(axis), rank));
        kept.dims()[axis] = 1;
      }
    if (axes.empty()) return false;
    std::sort(axes.begin(), axes.end());
    const OpPtr sum = make_op("sum", {{"axes", std::move(axes)}, {"keep_dims", true}});
    if (added == 0) return set(i, sum, {n.inputs[0]}, true);
    const Spec summed{n.outputs[0].dtype, with_channels_last(kept)};
    const ValueRef whole = transposed(insert(i, sum, n.inputs[0], summed), from_last(rank));
    return set(i, make_op("reshape", {{"shape", as_list(to.dims())}}), {whole}, false);
  }

  /// Views that keep batch and channels, and divide or merge the other axes.
  bool move_reshape(uint32_t i) {
    const GraphNode& n = before_.nodes[i];
    const Shape &from = shape(n.inputs[0]), &to = n.outputs[0].shape;
    if (!is_last(n.inputs[0]) || to.rank() < 3 || to.elements() == 0 || from[0] != to[0] || from[1] != to[1])
      return false;
    return set(i, make_op("reshape", {{"shape", as_list(with_channels_last(to).dims())}}), {n.inputs[0]},
               true);
  }

  bool move_along_axis(uint32_t i) {
    const GraphNode& n = before_.nodes[i];
    const size_t rank = n.outputs[0].shape.rank();
    const bool takes_number = is_op(*n.op, "pad_constant");
    if (takes_number ? !is_last(n.inputs[0]) : !all_of_rank(n, rank)) return false;
    Inputs inputs;
    for (size_t k = 0; k < n.inputs.size(); ++k)
      inputs.push_back(takes_number && k == 1 ? second(n.inputs[k]) : last(n.inputs[k]));
    const auto axis = resolve_axis(attribute<int64_t>(*n.op, "axis"), rank, n.op->name());
    return set(i, with(*n.op, "axis", moved_axis(static_cast<int64_t>(axis), rank)), std::move(inputs), true);
  }

  /// Changes a node, unless the shape of its result would not be the expected one.
  bool set(uint32_t i, OpPtr op, Inputs inputs, bool last) {
    const Spec& before = before_.nodes[i].outputs[0];
    InputSpecs specs;
    for (const ValueRef& input : inputs) specs.push_back(&rewriter_.spec(input));
    Specs outputs = op->infer(specs);
    if (!(outputs[0] == Spec{before.dtype, last ? with_channels_last(before.shape) : before.shape}))
      return false;
    GraphNode& n = rewriter_.node(i);
    n.op = std::move(op);
    n.inputs = std::move(inputs);
    n.outputs = std::move(outputs);
    is_moved_[i] = last;
    return true;
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
    const Shape& own = shape(v);
    if (own.rank() == rank) return last(v);
    const ValueRef from = second(v);
    if (own.elements() == 1) return from;
    return once(from, rank, [&] {
      Shape whole{Dims(rank - own.rank(), 1)};
      whole.dims().append(own.begin(), own.end());
      const OpPtr reshape = make_op("reshape", {{"shape", as_list(whole.dims())}});
      return transposed(insert(from.node, reshape, from, {before_.spec(v).dtype, whole}), to_last(rank));
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
    return insert(v.node, make_op("transpose", {{"order", as_list(order)}}), v, to);
  }
  /// Adds a node before the one that is being rewritten, with the tag and the line of node `like`.
  ValueRef insert(uint32_t like, OpPtr op, ValueRef input, const Spec& output) {
    GraphNode n;
    n.op = std::move(op);
    n.inputs = {input};
    n.outputs = {output};
    n.tag = rewriter_.node(like).tag;
    n.where = rewriter_.node(like).where;
    return {here_ ? rewriter_.add_before(*here_, std::move(n)) : rewriter_.add_last(std::move(n)), 0};
  }

  Graph& graph_;
  const Graph before_;
  GraphRewriter rewriter_;
  std::vector<bool> is_moved_;    // by node: its value has the channels last
  std::optional<uint32_t> here_;  // views are inserted before this node; none: at the end
  std::map<std::pair<ValueRef, size_t>, ValueRef> views_;
};

}  // namespace

bool channels_last(Graph& graph, const CompileOptions&) {
  if (graph.device != DeviceType::cpu) return false;
  if (std::none_of(graph.nodes.begin(), graph.nodes.end(), is_convolution)) return false;
  ChannelsLast(graph).run();
  return true;
}

}  // namespace espalier
