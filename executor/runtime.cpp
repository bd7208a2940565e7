#include "espalier/executor/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "espalier/core/error.h"
#include "espalier/executor/gradient_bucket.h"
#include "espalier/executor/parameter_gather.h"
#include "espalier/executor/session.h"

namespace espalier {

namespace {

/// The kernel of an assignment that could not be done in place.
struct Copy : Op {
  std::string_view name() const override { return "copy"; }
  Specs infer(const InputSpecs& in) const override { return {*in[1]}; }
  bool only_copies() const override { return true; }
  void run_cpu(const KernelCall& call) const override { copy_elements(*call.inputs[1], *call.outputs[0]); }
};

/// What a random node draws: its stream, counted from the step's first, and of that the numbers for its rows.
RandomStream numbers_of(const GraphNode& n, const PlanData& plan, const data::RowShare& share) {
  RandomStream random;
  random.stream = static_cast<uint64_t>(n.stream);
  if (!plan.replication || n.row_runs == 0) return random;
  const int64_t batch = plan.replication->batch_rows, rows = share.rows(batch);
  const int64_t of_run = n.outputs[0].shape.elements() / n.row_runs, of_row = of_run / rows;
  random.first = share.begin(batch) * of_row;
  random.run = of_run;
  random.stride = batch * of_row;
  return random;
}

}  // namespace

Runtime::Runtime(std::shared_ptr<const PlanData> plan, Session& session, data::RowShare share)
    : plan_(std::move(plan)), share_(share) {
  const LeafArena& leaves = session.leaves;
  const Device device = session.device();
  Tensor& arena = session.arena;
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
    Call call{n.op->has_side_effects() ? &copy : n.op.get(), {}, nullptr, &n.where, i};
    call.kernel.where = &n.where;
    if (n.stream >= 0) call.kernel.random = numbers_of(n, *plan_, share);
    for (const ValueRef& input : n.inputs) call.kernel.inputs.push_back(&values_[input.node][input.output]);
    for (Tensor& output : values_[i]) call.kernel.outputs.push_back(&output);
    calls_.push_back(std::move(call));
  }
  if (plan_->owners &&
      std::ranges::any_of(graph.nodes, [](const GraphNode& n) { return as_parameter_gather(*n.op); }))
    for (const auto& [leaf, owner] : plan_->owners->owner)
      if (owner != plan_->replica) assigned_.push_back(leaves.slot(leaf));
  for (const ValueRef& result : graph.results) results_.push_back(&values_[result.node][result.output]);
}

bool Runtime::exchanges(const Call& call) const {
  return plan_->replication && (as_bucket(*call.op) || is_arrival(*call.op) || as_parameter_gather(*call.op));
}

std::unique_ptr<BoundKernel> Runtime::bind_exchange(const Call& call, std::unique_ptr<BoundKernel> copy,
                                                    Session& session) const {
  if (as_parameter_gather(*call.op)) {
    const std::vector<Variable>& parameters = plan_->owners->parameters;
    const LeafArena& leaves = session.leaves;
    const size_t first = leaves.slot(parameters.front()), last = leaves.slot(parameters.back());
    std::vector<int64_t> bounds;
    for (const size_t begin : plan_->owners->begin) {
      const bool end = begin == parameters.size();
      const size_t slot = end ? last : leaves.slot(parameters[begin]);
      const int64_t whole = leaves.range(first, slot).elements(), own = leaves.range(slot, slot).elements();
      bounds.push_back(end ? whole : whole - own);
    }
    return bind_gather(leaves.range(first, last), std::move(bounds), *call.where, *session.exchange);
  }
  const Replication& replication = *plan_->replication;
  BucketCall bucket;
  bucket.parts = replication.parts;
  bucket.share = share_.replica;
  bucket.part = share_.replica % replication.parts;
  if (is_arrival(*call.op)) return bind_arrival(bucket.part + 1 == bucket.parts, *session.exchange);
  const auto& all = plan_->memory.buckets;
  while (all.at(bucket.number).node != call.node) ++bucket.number;
  const ArenaBuffer& buffer = plan_->memory.buffers[all[bucket.number].buffer];
  const DType dtype = call.kernel.outputs[0]->dtype();
  const auto size = static_cast<int64_t>(size_of(dtype));
  Layout layout(Shape{buffer.bytes / size});
  layout.offset = buffer.offset / size;
  bucket.values = Tensor(arena_.storage(), std::move(layout), dtype);
  if (as_bucket(*call.op)->scattered()) {
    // Members lie in the order of their owners.
    const auto& members = all[bucket.number].members;
    for (int r = 0; r <= plan_->owners->replicas; ++r) {
      const auto from = std::ranges::find_if(
          members, [&](const auto& m) { return plan_->owners->of(m.parameter.node()) >= r; });
      bucket.bounds.push_back(from == members.end() ? buffer.bytes / size : from->offset / size);
    }
    bucket.bounds.front() = 0;
  }
  bucket.where = *call.where;
  return bind_bucket(std::move(copy), std::move(bucket), replication, session.accumulators,
                     *session.exchange);
}

void Runtime::check_column(const Feed& feed, const Tensor& from, const Tensor& value) {
  if (!(from.shape() == value.shape()) || from.dtype() != value.dtype())
    throw DataError(fmt::format("{}: a batch of {} {} came where the plan has {} {}", feed.name(),
                                name(from.dtype()), from.shape().str(), name(value.dtype()),
                                value.shape().str()));
}

}  // namespace espalier
