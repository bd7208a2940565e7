#include "espalier/executor/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/core/eval.h"

namespace espalier {

void LeafArena::add(const Variable& leaf) {
  if (index_.emplace(leaf.node(), slots_.size()).second) {
    slots_.push_back({leaf, {}});
    allocated_ = false;
  }
}

void LeafArena::bind() {
  if (!allocated_) {
    constexpr int64_t alignment = 64;
    int64_t total = 0;
    std::vector<int64_t> offsets;
    for (const Slot& slot : slots_) {
      offsets.push_back(total);
      const auto bytes = static_cast<int64_t>(slot.leaf.node()->outputs[0].value.bytes());
      total += (bytes + alignment - 1) / alignment * alignment;
    }
    const Tensor arena({total}, DType::boolean);  // bytes
    for (size_t i = 0; i < slots_.size(); ++i) {
      const Spec& spec = slots_[i].leaf.node()->outputs[0].spec;
      Layout layout(spec.shape);
      layout.offset = offsets[i] / static_cast<int64_t>(size_of(spec.dtype));
      slots_[i].tensor = Tensor(arena.storage(), std::move(layout), spec.dtype);
    }
    allocated_ = true;
  }
  for (Slot& slot : slots_) {
    Tensor& value = slot.leaf.node()->outputs[0].value;
    if (value.address() == slot.tensor.address()) continue;
    copy_elements(value, slot.tensor);
    const bool large = value.bytes() >= (size_t{1} << 24);
    value = slot.tensor;
    slot.leaf.node()->bound = true;
    // What a large leaf has left would lie about beside the arena.
    if (large) release_cached_memory();
  }
}

void LeafArena::unbind() {
  for (Slot& slot : slots_) {
    Node& leaf = *slot.leaf.node();
    if (leaf.outputs[0].value.address() != slot.tensor.address()) continue;  // another's, or its own
    leaf.outputs[0].value = slot.tensor.clone();
    leaf.bound = false;
  }
}

const Tensor& LeafArena::tensor(const Variable& leaf) const { return slots_[index_.at(leaf.node())].tensor; }

void LeafArena::mark_assigned(const std::vector<Variable>& leaves) const {
  for (const Variable& leaf : leaves) leaf.node()->stamp = Node::next_id();
}

namespace {

/// The kernel of an assignment that could not be done in place.
struct Copy : Op {
  std::string_view name() const override { return "copy"; }
  Specs infer(const InputSpecs& in) const override { return {*in[1]}; }
  bool only_copies() const override { return true; }
  void run_cpu(const KernelCall& call) const override { copy_elements(*call.inputs[1], *call.outputs[0]); }
};

}  // namespace

Runtime::Runtime(std::shared_ptr<const PlanData> plan, const LeafArena& leaves, Tensor& arena)
    : plan_(std::move(plan)) {
  const Graph& graph = plan_->graph;
  const MemoryPlan& memory = plan_->memory;
  if (!arena.defined() || arena.elements() < memory.arena_bytes)
    arena = Tensor({memory.arena_bytes}, DType::boolean);  // bytes
  arena_ = arena;
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
        values_[i].emplace_back(graph.nodes[place.index].constant.storage(), std::move(layout), dtype);
      } else if (place.in == Place::In::leaf) {
        const Tensor& leaf = leaves.tensor(graph.nodes[place.index].leaf);
        layout.offset += leaf.layout().offset;
        values_[i].emplace_back(leaf.storage(), std::move(layout), dtype);
      } else {
        layout.offset += memory.buffers[place.index].offset / static_cast<int64_t>(size_of(dtype));
        values_[i].emplace_back(arena_.storage(), std::move(layout), dtype);
      }
    }
    if (n.op->feed()) sources_.emplace_back(&n, &values_[i][0]);
    if (n.op->has_side_effects()) assigned_.push_back(graph.nodes[n.inputs[0].node].leaf);
    if (!memory.runs[i]) continue;
    static const Copy copy;
    Call call{n.op->has_side_effects() ? &copy : n.op.get(), {}, nullptr, n.stream, &n.where};
    call.kernel.where = &n.where;
    for (const ValueRef& input : n.inputs) call.kernel.inputs.push_back(&values_[input.node][input.output]);
    for (Tensor& output : values_[i]) call.kernel.outputs.push_back(&output);
    calls_.push_back(std::move(call));
  }
  for (const ValueRef& result : graph.results) results_.push_back(&values_[result.node][result.output]);
  for (Call& call : calls_) located(*call.where, [&] { call.bound = call.op->bind_cpu(call.kernel); });
}

void Runtime::load(const Feed& feed, std::span<const Tensor> batch) {
  for (auto& [node, value] : sources_) {
    if (node->op->feed()->get() != &feed) continue;
    const Tensor& from = batch[node->op->feed_output()];
    if (!(from.shape() == value->shape()) || from.dtype() != value->dtype())
      throw DataError(fmt::format("{}: a batch of {} {} came where the plan has {} {}", feed.name(),
                                  name(from.dtype()), from.shape().str(), name(value->dtype()),
                                  value->shape().str()));
    copy_elements(from, *value);
  }
}

void Runtime::run(uint64_t first_stream, Laps* laps) {
  laps ? run_calls<true>(first_stream, laps) : run_calls<false>(first_stream, laps);
}

template <bool timed>
void Runtime::run_calls(uint64_t first_stream, [[maybe_unused]] Laps* laps) {
  Backend& cpu = cpu_backend();
  const uint64_t seed = generator().seed;
  if constexpr (timed) laps->push_back(std::chrono::steady_clock::now());
  for (Call& call : calls_) {
    if (call.random >= 0) call.kernel.random = {seed, first_stream + static_cast<uint64_t>(call.random)};
    try {
      if (call.bound)
        call.bound->run(call.kernel.random);
      else
        cpu.run(*call.op, call.kernel);
    } catch (Error& error) {
      error.locate(*call.where);
      throw;
    }
    if constexpr (timed) laps->push_back(std::chrono::steady_clock::now());
  }
}

}  // namespace espalier
