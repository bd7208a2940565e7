#include <algorithm>

#include "espalier/core/op_names.h"
#include "espalier/core/op_registry.h"
#include "espalier/executor/passes/passes.h"
#include "espalier/ops/elementwise/cast.h"

namespace espalier {

namespace {

/// Assembles a tensor from adjacent slices: copies each input to its layout.
class Join : public Op {
 public:
  Join(Spec whole, std::vector<Layout> parts)
      : Op({.only_copies = true}), whole_(std::move(whole)), parts_(std::move(parts)) {}
  std::string_view name() const override { return "join"; }
  Specs infer(const InputSpecs&) const override { return {whole_}; }
  /// The layouts, one after the other.
  Attributes attributes() const override {
    std::vector<int64_t> ranks, offsets, sizes, strides;
    for (const Layout& part : parts_) {
      ranks.push_back(static_cast<int64_t>(part.shape.rank()));
      offsets.push_back(part.offset);
      sizes.insert(sizes.end(), part.shape.begin(), part.shape.end());
      strides.insert(strides.end(), part.strides.begin(), part.strides.end());
    }
    return {{"dtype", std::string(espalier::name(whole_.dtype))},
            {"shape", std::vector<int64_t>(whole_.shape.begin(), whole_.shape.end())},
            {"ranks", std::move(ranks)},
            {"offsets", std::move(offsets)},
            {"sizes", std::move(sizes)},
            {"strides", std::move(strides)}};
  }
  void run_cpu(const KernelCall& call) const override {
    const Tensor& out = *call.outputs[0];
    for (size_t i = 0; i < parts_.size(); ++i) {
      Layout layout = parts_[i];
      layout.offset += out.layout().offset;
      Tensor part(out.storage(), std::move(layout), out.dtype());
      copy_elements(*call.inputs[i], part);
    }
  }

 private:
  Spec whole_;
  std::vector<Layout> parts_;
};

/// Returns true if all elements of a layout are among the first `elements`.
bool lies_within(const Layout& layout, int64_t elements) {
  int64_t last = layout.offset;
  for (size_t i = 0; i < layout.shape.rank(); ++i) {
    const int64_t size = layout.shape.dims()[i], stride = layout.strides[i];
    if (size < 0 || stride < 0 || size > elements || stride > elements) return false;
    if (size > 1 && stride > elements / size) return false;
    last += std::max<int64_t>(size - 1, 0) * stride;
  }
  return layout.offset >= 0 && layout.offset <= elements && (layout.shape.elements() == 0 || last < elements);
}

OpPtr make_join(AttributeReader& a) {
  Spec whole{a.dtype("dtype"), a.shape("shape")};
  const int64_t elements = whole.shape.elements();
  const Dims ranks = a.integers("ranks"), offsets = a.integers("offsets"), sizes = a.integers("sizes"),
             strides = a.integers("strides");
  if (offsets.size() != ranks.size()) a.refuse("offsets");
  if (strides.size() != sizes.size()) a.refuse("strides");
  std::vector<Layout> parts;
  size_t at = 0;
  for (size_t i = 0; i < ranks.size(); ++i) {
    if (ranks[i] < 0 || static_cast<size_t>(ranks[i]) > sizes.size() - at) a.refuse("ranks");
    Layout part;
    part.offset = offsets[i];
    const size_t end = at + static_cast<size_t>(ranks[i]);
    part.shape = Shape(Dims(sizes.begin() + at, sizes.begin() + end));
    for (; at < end; ++at) part.strides.push_back(strides[at]);
    if (!lies_within(part, elements)) a.refuse("sizes");
    parts.push_back(std::move(part));
  }
  if (at != sizes.size()) a.refuse("ranks");
  return std::make_shared<Join>(std::move(whole), std::move(parts));
}

/// A value padded with zeros along an axis.
struct Padded {
  ValueRef value;
  int64_t axis, begin, size;
};

/// Below a conversion that keeps every number: the 16-bit value, else the value itself.
ValueRef below_widening(const Graph& graph, ValueRef v) {
  const GraphNode& n = graph.nodes[v.node];
  const bool widens = is_op(*n.op, "cast") && is_half(graph.spec(n.inputs[0]).dtype) &&
                      (n.outputs[0].dtype == DType::float32 || n.outputs[0].dtype == DType::float64);
  return widens ? n.inputs[0] : v;
}

std::optional<Padded> padded(const Graph& graph, ValueRef v) {
  const GraphNode& n = graph.nodes[v.node];
  if (!is_op(*n.op, "pad_like")) return std::nullopt;
  const Shape& shape = n.outputs[0].shape;
  const auto axis =
      static_cast<int64_t>(resolve_axis(attribute<int64_t>(*n.op, "axis"), shape.rank(), "pad_like"));
  auto begin = attribute<int64_t>(*n.op, "begin");
  if (begin < 0) begin += shape[axis];
  return Padded{n.inputs[0], axis, begin, graph.spec(n.inputs[0]).shape[axis]};
}

/// Returns true if the node is a view of all elements of its input, in row-major order.
bool keeps_order(const Graph& graph, const GraphNode& n) {
  if (!n.op->is_view()) return false;
  const Shape& from = graph.spec(n.inputs[0]).shape;
  const auto layout = n.op->view(Layout(from), n.outputs[0]);
  return layout && layout->contiguous() && layout->offset == 0 && layout->shape.elements() == from.elements();
}

/// Lets all readers of a value, and conversions of it to the type of another, read that one.
void read_instead(Graph& graph, ValueRef value, ValueRef narrow) {
  const DType dtype = graph.spec(narrow).dtype;
  std::vector<uint32_t> same;  // conversions back
  for (uint32_t i = value.node + 1; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    if (is_op(*n.op, "cast") && n.inputs[0] == value && n.outputs[0].dtype == dtype) same.push_back(i);
  }
  const auto redirect = [&](ValueRef& ref) {
    if (std::find(same.begin(), same.end(), ref.node) != same.end()) ref = narrow;
  };
  for (GraphNode& n : graph.nodes)
    for (ValueRef& input : n.inputs) redirect(input);
  for (ValueRef& result : graph.results) redirect(result);
}

/// Replaces a sum of padded values by a Join, if the values are adjacent and cover the whole. In mixed
/// precision the sum is one of 16-bit values in float32: these are joined, and what is joined is converted.
/// Returns true if it did.
bool join(Graph& graph, const std::vector<int>& readers, uint32_t i) {
  GraphNode& n = graph.nodes[i];
  const ValueRef first = below_widening(graph, n.inputs[0]);
  const Spec whole{graph.spec(first).dtype, n.outputs[0].shape};
  std::vector<Padded> parts;
  uint32_t last_cast = 0;
  for (const ValueRef& input : n.inputs) {
    const ValueRef below = below_widening(graph, input);
    const auto part = padded(graph, below);
    if (!part || readers[input.node] != 1 || readers[below.node] != 1 || !(graph.spec(below) == whole))
      return false;
    parts.push_back(*part);
    last_cast = std::max(last_cast, input.node);
  }
  std::sort(parts.begin(), parts.end(), [](const Padded& a, const Padded& b) {
    return std::pair(a.begin, a.size) < std::pair(b.begin, b.size);
  });
  int64_t end = 0;
  for (const Padded& part : parts) {
    if (part.axis != parts[0].axis || part.begin != end) return false;
    end += part.size;
  }
  if (end != whole.shape[parts[0].axis]) return false;
  std::vector<ValueRef> inputs;
  std::vector<Layout> layouts;
  for (const Padded& part : parts) {
    Layout layout(whole.shape);
    layout.offset = part.begin * layout.strides[static_cast<size_t>(part.axis)];
    layout.shape.dims()[static_cast<size_t>(part.axis)] = part.size;
    // Skip reshaping views: the elements can be written in their original shape.
    ValueRef value = part.value;
    while (keeps_order(graph, graph.nodes[value.node])) {
      const ValueRef before = graph.nodes[value.node].inputs[0];
      Layout as_before;
      if (!reshape_layout(layout, graph.spec(before).shape, as_before)) break;
      layout = std::move(as_before);
      value = before;
    }
    inputs.push_back(value);
    layouts.push_back(std::move(layout));
  }
  // The last conversion stands behind all parts.
  const bool widens = whole.dtype != n.outputs[0].dtype;
  GraphNode& joined = widens ? graph.nodes[last_cast] : n;
  joined.inputs = {inputs.begin(), inputs.end()};
  joined.outputs = {whole};
  joined.op = std::make_shared<Join>(whole, std::move(layouts));
  if (!widens) return true;
  n.op = cast_op(n.outputs[0].dtype);
  n.inputs = {{last_cast, 0}};
  read_instead(graph, {i, 0}, {last_cast, 0});
  return true;
}

}  // namespace

void add_join_op(OpRegistry& ops) { ops.add("join", Arity::passes_only(), make_join); }

bool join_slices(Graph& graph, const CompileOptions&) {
  std::vector<int> readers(graph.nodes.size(), 0);
  for (const GraphNode& n : graph.nodes)
    for (const ValueRef& input : n.inputs) ++readers[input.node];
  for (const ValueRef& result : graph.results) ++readers[result.node];
  bool changed = false;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (const Op& op = *graph.nodes[i].op; is_op(op, "add") || is_op(op, "add_all"))
      changed |= join(graph, readers, i);
  if (changed) dead_nodes(graph);
  return changed;
}

}  // namespace espalier
