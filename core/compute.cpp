// The value of one node, computed from those of its inputs.
#include <fmt/format.h>

#include "espalier/core/deferred/waiting.h"
#include "espalier/core/error.h"
#include "espalier/core/eval.h"
#include "espalier/core/feed.h"
#include "espalier/core/nan_check.h"
#include "espalier/core/random_streams.h"
#include "espalier/core/small_vector.h"

namespace espalier {

const Tensor& input_in(const FeedSnapshot* snapshot, const Edge& input) {
  const AssignedState* assigned = assigned_in(snapshot, input.node());
  return assigned ? assigned->before : input.value();
}

namespace {

/// Fills in outputs that are views of input 0, if strides can express them.
bool compute_view(Node& node, const Spec& spec, const FeedSnapshot* snapshot) {
  const Node* from = node.inputs.empty() ? nullptr : node.inputs[0].node();
  if (!node.op().is_view() || (from->bound && !assigned_in(snapshot, from))) return false;
  const Tensor& input = input_in(snapshot, node.inputs[0]);
  const std::optional<Layout> layout = node.op().view(input.layout(), spec);
  if (!layout) return false;
  node.outputs[0].value = Tensor(input.storage(), *layout, spec.dtype);
  return true;
}

void check_devices(const Node& node, const Tensor& a, const Tensor& b) {
  // All logical CPU devices share one memory.
  if (a.device() != b.device() && (a.device().type != DeviceType::cpu || b.device().type != DeviceType::cpu))
    throw DeviceError(fmt::format("{}: one operand is on {} and another on {}; use to(device)",
                                  node.op().name(), a.device().str(), b.device().str()));
}

/// Takes the buffer of an input whose value is not needed after this node; the input is left without a value.
Tensor take_over(Node& node, const Spec& spec, uint32_t last) {
  for (uint32_t i = 0; last >> i; ++i) {
    if (!((last >> i) & 1) || !node.op().can_write_over(0, i)) continue;
    if (node.needs_gradient && !build_context().without_activations &&
        node.op().traits().gradient_reads.contains(i))
      continue;
    const Edge& edge = node.inputs[i];
    const Tensor& input = edge.value();
    if (input.storage().unique() && input.spec() == spec && input.contiguous() &&
        edge.node()->outputs.size() == 1 && edge.node()->value_ends_with_handle())
      return input;
  }
  return {};
}

}  // namespace

void compute(Node& node, uint32_t last, const FeedSnapshot* snapshot) {
  const Op& op = node.op();
  ThreadKernels& kernels = kernels_here();
  if (kernels.find_nan) last = 0;  // operands are looked at behind the kernel
  if (node.waits) computed_apart(node);
  if (node.batch) node.batch.reset();  // another value than the batch has computed
  if (op.effect() == Effect::writes_leaf)
    throw Error(fmt::format(
        "{}: this node has no value, and no executor of its own: Variable::update and executors of a loss "
        "run it, and write all leaves of a step together; set_value() writes a leaf by hand",
        op.name()));
  KernelCall call;
  call.where = &node.where;
  SmallVector<Tensor, 4> shapes;  // of inputs that have had no value yet, and of which none is read
  for (const Edge& edge : node.inputs) {
    const Tensor& input = input_in(snapshot, edge);
    const Spec& spec = edge.node()->outputs[edge.output()].spec;
    if (!call.inputs.empty() && op.reads_elements(0) && op.reads_elements(call.inputs.size()))
      check_devices(node, *call.inputs[0], input);
    if (!input.defined() && !edge.node()->lazy && !(input.shape() == spec.shape)) {
      if (shapes.empty()) shapes.reserve(node.inputs.size());
      shapes.emplace_back(StoragePtr(), Layout(spec.shape), spec.dtype);
      call.inputs.push_back(&shapes.back());
    } else {
      call.inputs.push_back(&input);
    }
  }
  const bool draws = op.is_random() && !node.drawn;
  Specs inferred;
  if (node.lazy || draws) {
    InputSpecs specs;
    SmallVector<Spec, 4> storage;
    storage.reserve(node.inputs.size());
    for (const Tensor* input : call.inputs) storage.push_back(input->spec());
    for (const Spec& spec : storage) specs.push_back(&spec);
    // A short last batch has other shapes than the tree was written with.
    if (node.lazy) inferred = op.infer(specs);
    if (draws) {
      node.rare().stream = next_streams_of(op, specs);
      node.drawn = true;
    }
  }
  const auto spec = [&](size_t k) -> const Spec& { return node.lazy ? inferred[k] : node.outputs[k].spec; };
  if (compute_view(node, spec(0), snapshot)) return;
  if (op.is_random()) call.random = node.rare().stream;
  const Device device = op.traits().output_device.value_or(
      call.inputs.empty() ? Device{} : input_in(snapshot, node.inputs[0]).device());
  SmallVector<Tensor, 1> results;
  if (last && !node.lazy)
    if (Tensor taken = take_over(node, spec(0), last); taken.defined()) results.push_back(std::move(taken));
  for (size_t k = results.size(); k < node.outputs.size(); ++k)
    results.push_back(Tensor(spec(k).shape, spec(k).dtype, device));
  for (Tensor& result : results) call.outputs.push_back(&result);
  backend(device).run(op, call);
  ++kernels.run;
  if (kernels.find_nan) check_finite(node, call);
  for (uint32_t i = 0; last >> i; ++i)  // what was written over is no longer that input's value
    if (((last >> i) & 1) && node.inputs[i].value().storage().get() == results[0].storage().get())
      node.inputs[i].node()->clear_value();
  for (size_t k = 0; k < results.size(); ++k) node.outputs[k].value = std::move(results[k]);
}

}  // namespace espalier
