#include "espalier/executor/runtime/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "espalier/core/error.h"
#include "espalier/executor/runtime/session.h"

namespace espalier {

namespace {

/// The kernel of an assignment that could not be done in place.
struct Copy : Op {
  Copy() : Op({.only_copies = true}) {}
  std::string_view name() const override { return "copy"; }
  Specs infer(const InputSpecs& in) const override { return {*in[1]}; }
  void run_cpu(const KernelCall& call) const override { copy_elements(*call.inputs[1], *call.outputs[0]); }
};

/// What a random node draws: its stream, counted from the step's first, and of that the numbers for its rows.
RandomStream numbers_of(const GraphNode& n, const PlanData& plan, const BatchShard& shard) {
  RandomStream random;
  random.stream = static_cast<uint64_t>(n.stream);
  if (!plan.replication || n.row_runs == 0) return random;
  const int64_t batch = plan.replication->batch_rows, rows = shard.rows(batch);
  const int64_t of_run = n.outputs[0].shape.elements() / n.row_runs, of_row = of_run / rows;
  random.first = shard.begin(batch) * of_row;
  random.run = of_run;
  random.stride = batch * of_row;
  return random;
}

Tensor new_arena(const MemoryPlan& memory, Device device) {
  try {
    return Tensor({memory.arena_bytes}, DType::boolean, device);  // bytes
  } catch (const OutOfMemory& error) {
    throw OutOfMemory(
        fmt::format("a plan keeps its values and batch in {} bytes: {}", memory.arena_bytes, error.what()));
  }
}

}  // namespace

Runtime::Runtime(std::shared_ptr<const PlanData> plan, Session& session, BatchShard shard)
    : plan_(std::move(plan)) {
  const ParameterArena& leaves = session.leaves;
  const Device device = session.device();
  Tensor& arena = session.arena;
  const Graph& graph = plan_->graph;
  const MemoryPlan& memory = plan_->memory;
  if (!arena.defined() || arena.elements() < memory.arena_bytes) arena = new_arena(memory, device);
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
  const std::vector<bool> of_leaves = made_of_leaves(graph);
  for (uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const GraphNode& n = graph.nodes[i];
    for (uint32_t k = 0; k < n.outputs.size(); ++k) {
      const Place& place = memory.places[i][k];
      Layout layout = place.layout;
      const DType dtype = n.outputs[k].dtype;
      if (place.in == Place::In::nowhere) {
        values_[i].push_back(Tensor(StoragePtr(), std::move(layout), dtype));
      } else if (place.in == Place::In::constant) {
        values_[i].push_back(
            Tensor(on_device(graph.nodes[place.index].constant->storage()), std::move(layout), dtype));
      } else if (place.in == Place::In::leaf) {
        const Tensor& leaf = leaves.tensor(leaves.slot(graph.nodes[place.index].leaf));
        layout.offset += leaf.layout().offset;
        values_[i].push_back(Tensor(leaf.storage(), std::move(layout), dtype));
      } else {
        layout.offset += memory.buffers[place.index].offset / static_cast<int64_t>(size_of(dtype));
        values_[i].push_back(Tensor(arena_.storage(), std::move(layout), dtype));
      }
    }
    if (n.op->feed()) sources_.push_back({n.op.get(), &values_[i][0]});
    if (n.op->has_side_effects()) assigned_.push_back(leaves.slot(graph.nodes[n.inputs[0].node].leaf));
    if (!memory.runs[i]) continue;
    static const Copy copy;
    Call call{n.op->has_side_effects() ? &copy : n.op.get(),
              {},
              nullptr,
              &n.where,
              i,
              of_leaves[i],
              InputSet::none()};
    for (size_t k = 0; k < n.inputs.size() && k < 63; ++k)
      if (of_leaves[n.inputs[k].node]) call.leaf_inputs.bits |= InputSet::only(k).bits;
    call.kernel.where = &n.where;
    if (n.stream >= 0) call.kernel.random = numbers_of(n, *plan_, shard);
    for (const ValueRef& input : n.inputs) call.kernel.inputs.push_back(&values_[input.node][input.output]);
    for (Tensor& output : values_[i]) call.kernel.outputs.push_back(&output);
    calls_.push_back(std::move(call));
  }
  for (const GraphNode& n : graph.nodes)
    for (const Node* leaf : n.gathered)
      if (plan_->owners()->of(leaf) != plan_->replication->replica) assigned_.push_back(leaves.slot(leaf));
  for (const ValueRef& result : graph.results) results_.push_back(&values_[result.node][result.output]);
  if (plan_->find_nan != NanSearch::off) {
    std::vector<Tensor> written;
    for (const size_t slot : assigned_)
      if (leaves.has(slot)) written.push_back(leaves.tensor(slot));
    nan_finder_ = std::make_unique<NanFinder>(*plan_, values_, std::move(written));
  }
  context_.offer(workspace_);
  context_.offer<KeptValues>(session.kept);
  context_.offer(kept_);
  if (!plan_->replication) return;
  const auto bytes_of_leaves = [&leaves](const Node* first, const Node* last) {
    return leaves.range(leaves.slot(first), leaves.slot(last));
  };
  replica_.emplace(ReplicaServices{*plan_->replication, plan_->owners(), shard, *session.gradient_sync,
                                   session.accumulators, bytes_of_leaves});
  context_.offer(*replica_);
}

Workspace Runtime::workspace_of(uint32_t node) const {
  const auto& buffer = plan_->memory.workspaces[node];
  if (!buffer) return {};
  const ArenaBuffer& region = plan_->memory.buffers[*buffer];
  Layout layout(Shape{region.bytes});
  layout.offset = region.offset;
  return Workspace(Tensor(arena_.storage(), std::move(layout), DType::boolean));  // bytes
}

KeptInputs Runtime::kept_inputs_of(uint32_t node) const {
  if (!plan_->keeps_leaves) return {};
  const auto& inputs = plan_->graph.nodes[node].inputs;
  KeptInputs kept;
  for (size_t k = 0; k < inputs.size() && k < 63; ++k) {
    const Place& place = plan_->memory.places[inputs[k].node][inputs[k].output];
    if (place.in == Place::In::leaf || place.in == Place::In::constant)
      kept.inputs.bits |= InputSet::only(k).bits;
  }
  return kept;
}

void Runtime::bind(Call& call) {
  workspace_ = workspace_of(call.node);
  kept_ = kept_inputs_of(call.node);
  located(*call.where, [&] { call.bound = bind_kernel(*call.op, call.kernel, context_); });
}

void Runtime::touch_arena() {
  constexpr int64_t page = 4096;
  volatile char* const bytes = static_cast<char*>(arena_.address());
  for (int64_t at = 0; at < arena_.elements(); at += page) bytes[at] = bytes[at];
}

void Runtime::check_column(const Feed& feed, const Tensor& from, const Tensor& value) {
  if (!(from.shape() == value.shape()) || from.dtype() != value.dtype())
    throw DataError(fmt::format("{}: a batch of {} {} came where the plan has {} {}", feed.name(),
                                name(from.dtype()), from.shape().str(), name(value.dtype()),
                                value.shape().str()));
}

}  // namespace espalier
