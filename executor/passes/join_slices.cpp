#include <algorithm>

#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

/// Assembles a tensor from adjacent slices: copies each input to its layout.
class Join : public Op {
 public:
  Join(Spec whole, std::vector<Layout> parts)
      : Op({.only_copies = true}), whole_(std::move(whole)), parts_(std::move(parts)) {}
  std::string_view name() const override { return "join"; }
  Specs infer(const InputSpecs&) const override { return {whole_}; }
  bool equals(const Op& other) const override { return this == &other; }
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

/// A value padded with zeros along an axis.
struct Padded {
  ValueRef value;
  int64_t axis, begin, size;
};

std::optional<Padded> padded(const Graph& graph, ValueRef v) {
  const GraphNode& n = graph.nodes[v.node];
  if (n.op->name() != "pad_like") return std::nullopt;
  const Attributes attributes = n.op->attributes();
  const Shape& shape = n.outputs[0].shape;
  const auto axis =
      static_cast<int64_t>(resolve_axis(std::get<int64_t>(attributes[0].second), shape.rank(), "pad_like"));
  int64_t begin = std::get<int64_t>(attributes[1].second);
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

/// Replaces a sum of padded values by a Join, if the values are adjacent and cover the whole. Returns true if
/// it did.
bool join(Graph& graph, const std::vector<int>& readers, uint32_t i) {
  GraphNode& n = graph.nodes[i];
  const Spec whole = n.outputs[0];
  std::vector<Padded> parts;
  for (const ValueRef& input : n.inputs) {
    const auto part = padded(graph, input);
    if (!part || readers[input.node] != 1 || !(graph.spec(input) == whole)) return false;
    parts.push_back(*part);
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
  n.inputs = std::move(inputs);
  n.op = std::make_shared<Join>(whole, std::move(layouts));
  return true;
}

}  // namespace

bool join_slices(Graph& graph, const CompileOptions&) {
  std::vector<int> readers(graph.nodes.size(), 0);
  for (const GraphNode& n : graph.nodes)
    for (const ValueRef& input : n.inputs) ++readers[input.node];
  for (const ValueRef& result : graph.results) ++readers[result.node];
  bool changed = false;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i)
    if (const auto name = graph.nodes[i].op->name(); name == "add" || name == "add_all")
      changed |= join(graph, readers, i);
  if (changed) dead_nodes(graph);
  return changed;
}

}  // namespace espalier
