#include "espalier/executor/runtime.h"

#include <fmt/format.h>

#include <map>

#include "espalier/core/error.h"

namespace espalier {

namespace {

/// The kernel of an assignment that could not be done in place.
struct Copy : Op {
  std::string_view name() const override { return "copy"; }
  Specs infer(const InputSpecs& in) const override { return {*in[1]}; }
  bool only_copies() const override { return true; }
  void run_cpu(const KernelCall& call) const override { copy_elements(*call.inputs[1], *call.outputs[0]); }
};

}  // namespace

Runtime::Runtime(std::shared_ptr<const PlanData> plan, const LeafArena& leaves, Tensor& arena, Device device)
    : plan_(std::move(plan)) {
  const Graph& graph = plan_->graph;
  const MemoryPlan& memory = plan_->memory;
  if (!arena.defined() || arena.elements() < memory.arena_bytes)
    arena = Tensor({memory.arena_bytes}, DType::boolean, device);  // bytes
  arena_ = arena;
  std::map<const Storage*, Tensor> moved;  // whole buffers of constants, so that layouts stay as they are
  const auto on_device = [&](const StoragePtr& storage) {
    Tensor& there = moved[storage.get()];
    if (!there.defined()) {
      const Shape all{static_cast<int64_t>(storage->bytes)};
      there = Tensor(storage, Layout(all), DType::boolean);
      if (device.type != DeviceType::cpu || storage->device.type != DeviceType::cpu) there = there.to(device);
    }
    return there.storage();
  };
  values_.resize(graph.nodes.size());
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    for (uint32_t k = 0; k < n.outputs.size(); ++k) {
      const Place& place = memory.places[i][k];
      Layout layout = place.layout;
      const DType dtype = n.outputs[k].dtype;
      if (place.in == Place::In::nowhere) {
        values_[i].emplace_back(StoragePtr(), std::move(layout), dtype);
      } else if (place.in == Place::In::constant) {
        values_[i].emplace_back(on_device(graph.nodes[place.index].constant.storage()), std::move(layout),
                                dtype);
      } else if (place.in == Place::In::leaf) {
        const Tensor& leaf = leaves.tensor(leaves.slot(graph.nodes[place.index].leaf));
        layout.offset += leaf.layout().offset;
        values_[i].emplace_back(leaf.storage(), std::move(layout), dtype);
      } else {
        layout.offset += memory.buffers[place.index].offset / static_cast<int64_t>(size_of(dtype));
        values_[i].emplace_back(arena_.storage(), std::move(layout), dtype);
      }
    }
    if (n.op->feed()) sources_.push_back({n.op.get(), &values_[i][0]});
    if (n.op->has_side_effects()) assigned_.push_back(leaves.slot(graph.nodes[n.inputs[0].node].leaf));
    if (!memory.runs[i]) continue;
    static const Copy copy;
    Call call{n.op->has_side_effects() ? &copy : n.op.get(), {}, nullptr, &n.where};
    call.kernel.where = &n.where;
    if (n.stream >= 0) call.kernel.random.stream = static_cast<uint64_t>(n.stream);
    for (const ValueRef& input : n.inputs) call.kernel.inputs.push_back(&values_[input.node][input.output]);
    for (Tensor& output : values_[i]) call.kernel.outputs.push_back(&output);
    calls_.push_back(std::move(call));
  }
  for (const ValueRef& result : graph.results) results_.push_back(&values_[result.node][result.output]);
}

void Runtime::check_column(const Feed& feed, const Tensor& from, const Tensor& value) {
  if (!(from.shape() == value.shape()) || from.dtype() != value.dtype())
    throw DataError(fmt::format("{}: a batch of {} {} came where the plan has {} {}", feed.name(),
                                name(from.dtype()), from.shape().str(), name(value.dtype()),
                                value.shape().str()));
}

}  // namespace espalier
