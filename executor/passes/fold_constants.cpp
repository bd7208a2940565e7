#include "espalier/core/device.h"
#include "espalier/executor/passes/passes.h"

namespace espalier {

namespace {

bool can_fold(const Graph& graph, const GraphNode& n) {
  if (n.op->is_leaf() || n.op->effect() != Effect::none || n.op->feed() || n.outputs.size() != 1)
    return false;
  size_t read = 64;
  std::optional<Device> device;
  for (size_t k = 0; k < n.inputs.size(); ++k) {
    const GraphNode& input = graph.nodes[n.inputs[k].node];
    if (!n.op->reads_elements(k)) continue;
    if (!input.is_constant()) return false;
    if (device && *device != input.constant->device()) return false;  // computed on the plan's device
    device = input.constant->device();
    read += input.constant->bytes();
  }
  return n.op->is_view() ||
         Tensor(StoragePtr(), Layout(n.outputs[0].shape), n.outputs[0].dtype).bytes() <= read;
}

Tensor evaluate(const Graph& graph, const GraphNode& n) {
  std::vector<Tensor> inputs;
  for (size_t k = 0; k < n.inputs.size(); ++k) {
    const GraphNode& input = graph.nodes[n.inputs[k].node];
    const Spec& spec = graph.spec(n.inputs[k]);
    inputs.push_back(input.is_constant() ? *input.constant
                                         : Tensor(StoragePtr(), Layout(spec.shape), spec.dtype));
  }
  if (n.op->is_view())
    if (const auto layout = n.op->view(inputs[0].layout(), n.outputs[0]))
      return Tensor(inputs[0].storage(), *layout, n.outputs[0].dtype);
  KernelCall call;
  for (const Tensor& input : inputs) call.inputs.push_back(&input);
  const Device device = n.op->traits().output_device.value_or(inputs.empty() ? Device{} : inputs[0].device());
  Tensor result(n.outputs[0].shape, n.outputs[0].dtype, device);
  call.outputs.push_back(&result);
  backend(device).run(*n.op, call);
  return result;
}

}  // namespace

bool fold_constants(Graph& graph, const CompileOptions&) {
  bool changed = false;
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    if (!can_fold(graph, graph.nodes[i])) continue;
    graph.make_constant(i, evaluate(graph, graph.nodes[i]));
    changed = true;
  }
  if (changed) dead_nodes(graph);
  return changed;
}

}  // namespace espalier
