#include "espalier/executor/sharding/shape_values.h"

#include <cstring>
#include <vector>

#include "espalier/core/device.h"

namespace espalier {

bool reads_shapes_alone(const GraphNode& n) {
  for (size_t k = 0; k < n.inputs.size(); ++k)
    if (n.op->reads_elements(k)) return false;
  return n.outputs.size() == 1 && n.op->effect() == Effect::none && !n.op->feed();
}

Tensor value_of_shapes(const Graph& graph, uint32_t i) {
  const GraphNode& n = graph.nodes[i];
  std::vector<Tensor> operands;
  for (size_t k = 0; k < n.inputs.size(); ++k) {
    const Spec& spec = graph.spec(n.inputs[k]);
    operands.push_back(n.op->reads_elements(k) ? value_of_shapes(graph, n.inputs[k].node)
                                               : Tensor(StoragePtr(), Layout(spec.shape), spec.dtype));
  }
  KernelCall call;
  for (const Tensor& operand : operands) call.inputs.push_back(&operand);
  Tensor result(n.outputs[0].shape, n.outputs[0].dtype);
  call.outputs.push_back(&result);
  backend(result.device()).run(*n.op, call);
  return result;
}

bool is_cheap_to_know(const Graph& graph, uint32_t i) {
  constexpr int64_t most = int64_t{1} << 20;  // elements
  const GraphNode& n = graph.nodes[i];
  if (n.op->is_view() || n.outputs[0].shape.elements() > most) return false;
  for (size_t k = 0; k < n.inputs.size(); ++k)
    if (n.op->reads_elements(k) && !is_cheap_to_know(graph, n.inputs[k].node)) return false;
  return true;
}

bool is_same_for_all_sizes(const Graph& part, const Graph& other, uint32_t i) {
  const GraphNode &a = part.nodes[i], &b = other.nodes[i];
  if (!reads_shapes_alone(a) || a.outputs[0] != b.outputs[0]) return false;
  const Tensor few = value_of_shapes(part, i), all = value_of_shapes(other, i);
  return std::memcmp(few.address(), all.address(), static_cast<size_t>(few.bytes())) == 0;
}

}  // namespace espalier
