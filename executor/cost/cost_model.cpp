#include "espalier/executor/cost/cost_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/executor/plan/plan_data.h"

namespace espalier {

namespace presets {

CostInputs h100_nvlink() { return {.hardware = h100(), .network = nvlink()}; }
CostInputs h200_nvlink() { return {.hardware = h200(), .network = nvlink()}; }
CostInputs ethernet_100g(Hardware gpu) { return {.hardware = std::move(gpu), .network = ethernet(100e9)}; }
CostInputs ethernet_25g(Hardware gpu) { return {.hardware = std::move(gpu), .network = ethernet(25e9)}; }
std::vector<CostInputs> all() { return {h100_nvlink(), h200_nvlink(), ethernet_100g(), ethernet_25g()}; }

}  // namespace presets

namespace internal {

namespace {

void check(const CostInputs& inputs) {
  const auto need = [](bool good, const char* what, double value) {
    if (!good) throw Error(fmt::format("predict: {} cannot be {:g}", what, value));
  };
  const auto positive = [&](double value, const char* what) { need(value > 0, what, value); };
  const auto share = [&](double value, const char* what) { need(value > 0 && value <= 1, what, value); };
  const auto finite = [&](double value, const char* what) {
    need(value >= 0 && std::isfinite(value), what, value);
  };
  const Hardware& device = inputs.hardware;
  positive(device.float32, "the hardware's rate in float32");
  positive(device.float64, "the hardware's rate in float64");
  positive(device.tf32, "the hardware's rate in tf32");
  positive(device.half, "the hardware's rate in 16 bits");
  positive(device.bandwidth, "the bandwidth of the hardware's memory");
  share(device.product_share, "the share of the rates that products reach");
  share(device.bandwidth_share, "the share of the bandwidth that kernels reach");
  finite(device.launch, "the seconds of a launch");
  finite(device.memory, "the bytes of the hardware's memory");
  need(inputs.overlap >= 0 && inputs.overlap <= 1, "the overlap", inputs.overlap);
  for (const Network::Level& level : inputs.network.levels) {
    positive(level.bandwidth, "the bandwidth of a level of the network");
    share(level.bandwidth_share, "the share of a level's bandwidth that is reached");
    finite(level.latency, "the latency of a level of the network");
    need(level.size >= 0, "the size of a level of the network", static_cast<double>(level.size));
    need(level.size > 0 || &level == &inputs.network.levels.back(),
         "the size of a level that is not the last", 0);
  }
}

/// The data of a plan that all predictions need.
class Model {
 public:
  Model(const PlanData& plan, const CostInputs& inputs)
      : plan_(plan), inputs_(inputs), costs_(node_costs(plan)) {
    check(inputs);
    for (const GraphNode& n : plan.graph.nodes) {
      if (n.op->feed() && n.outputs[0].shape.rank() > 0) rows_ = std::max(rows_, n.outputs[0].shape[0]);
      if (!n.leaf.defined()) continue;
      (is_trainable(*n.op) ? parameters_ : states_) += aligned_bytes(n.outputs[0].bytes());
    }
    if (plan.owners()) {
      const StateOwners& owners = *plan.owners();
      const auto own = static_cast<size_t>(plan.replication->replica);
      for (const int64_t bytes : owners.state_bytes) owned_states_ += bytes;
      most_owned_ = *std::ranges::max_element(owners.state_bytes);
      states_ -= owners.state_bytes[own];
      for (const int64_t bytes : owners.parameter_bytes) updated_ += bytes;
      if (owners.parameter_bytes[own] > 0)
        all_updates_ = static_cast<double>(updated_) / static_cast<double>(owners.parameter_bytes[own]);
    } else {
      std::swap(owned_states_, states_);
    }
    if (!plan.replication) return;
    const Replication& r = *plan.replication;
    micro_batches_ = r.micro_batches;
    if (r.batch_rows > 0) rows_ = (r.batch_rows + r.replicas - 1) / r.replicas;
    for (const BucketPlan& bucket : plan.memory.buckets) gradients_ += bucket.bytes;
  }

  int64_t rows() const { return rows_; }

  /// Predicts a step, without `samples` and `efficiency`.
  Prediction on(int64_t replicas, double share) const {
    Prediction result{.replicas = replicas, .rows = static_cast<double>(rows_) * share};
    const bool sharded = (inputs_.sharded_states || plan_.owners()) && replicas > 1;
    const double part = sharded ? all_updates_ / static_cast<double>(replicas) : all_updates_;
    const auto nodes = static_cast<uint32_t>(plan_.graph.nodes.size());
    std::vector<double> end(nodes);       // of each node, without waiting for communication
    for (uint32_t i = 0; i < nodes; ++i)  // micro-batches before the last one
      if (plan_.memory.runs[i] && plan_.graph.nodes[i].tag != Tag::update)
        result.compute += (micro_batches_ - 1) * seconds(i, share, 1);
    for (uint32_t i = 0; i < nodes; ++i) {
      if (plan_.memory.runs[i])
        result.compute += seconds(i, share, plan_.graph.nodes[i].tag == Tag::update ? part : 1);
      end[i] = result.compute;
    }
    if (plan_.replication && replicas > 1) {
      const uint32_t node = plan_.memory.gradient_wait;
      const double wait = node > 0 ? end[node - 1] : 0;
      // With sharded states, gradients are reduced and scattered, and after the updates parameters are
      // gathered: the two halves of an all-reduce. A plan with owners records which gradients are scattered.
      std::vector<Transfer> transfers;
      double sums = 0, gather = 0;
      for (const BucketPlan& bucket : plan_.memory.buckets) {
        const double whole = all_reduce_seconds(inputs_.network, static_cast<double>(bucket.bytes), replicas);
        const bool scattered = plan_.owners() ? bucket.scattered : sharded;
        transfers.push_back({end[bucket.node], scattered ? 0.5 * whole : whole});
        sums += transfers.back().seconds;
        if (sharded && !plan_.owners()) gather += 0.5 * whole;
      }
      if (plan_.owners())
        gather = 0.5 * all_reduce_seconds(inputs_.network, static_cast<double>(updated_), replicas);
      result.communication = sums + gather;
      const double waited = std::max(0.0, end_of_transfers(transfers) - wait);
      result.exposed = result.communication - inputs_.overlap * (sums - std::min(sums, waited));
    }
    result.step = result.compute + result.exposed;
    result.memory = memory(share, sharded ? replicas : 1);
    result.fits =
        inputs_.hardware.memory == 0 || static_cast<double>(result.memory) <= inputs_.hardware.memory;
    return result;
  }

 private:
  double seconds(uint32_t i, double share, double part) const {
    NodeCost cost = costs_[i];
    for (double* work : {&cost.product_flops, &cost.flops, &cost.bytes, &cost.fixed_bytes}) *work *= part;
    return kernel_seconds(cost, inputs_, share);
  }

  int64_t memory(double share, int64_t shards) const {
    const int64_t fixed = std::min(gradients_, plan_.memory.arena_bytes);
    const int64_t sums = micro_batches_ > 1 ? gradients_ : 0;
    const auto values = static_cast<double>(plan_.memory.arena_bytes - fixed) * share;
    const bool as_planned = plan_.owners() && shards == plan_.owners()->replicas;
    const int64_t owned = as_planned ? most_owned_ : (owned_states_ + shards - 1) / shards;
    return parameters_ + states_ + owned + fixed + sums + static_cast<int64_t>(std::llround(values));
  }

  const PlanData& plan_;
  const CostInputs& inputs_;
  std::vector<NodeCost> costs_;
  int64_t rows_ = 0;                        // of one replica, as planned
  int micro_batches_ = 1;                   // of each step
  int64_t parameters_ = 0, gradients_ = 0;  // bytes
  int64_t states_ = 0;                      // replicated states
  int64_t owned_states_ = 0;                // states that can be sharded, over all replicas
  int64_t most_owned_ = 0;                  // the largest shard of one replica, as planned
  int64_t updated_ = 0;                     // parameters that have owners
  double all_updates_ = 1;                  // all parameters / those that this plan updates
};

/// Sets `samples` and `efficiency`, relative to a single replica.
void compare(Prediction& result, double rows, const Prediction& alone, double rows_alone) {
  result.samples = result.step > 0 ? rows / result.step : 0;
  const double work = rows_alone > 0 ? rows / rows_alone : static_cast<double>(result.replicas);
  result.efficiency =
      result.step > 0 ? work * alone.step / (static_cast<double>(result.replicas) * result.step) : 1;
}

}  // namespace

double kernel_seconds(const NodeCost& cost, const CostInputs& inputs, double share) {
  const Hardware& device = inputs.hardware;
  double rate = device.float32;
  switch (cost.product_type) {
    case DType::float16:
    case DType::bfloat16: rate = device.half; break;
    case DType::float64: rate = device.float64; break;
    default:
      if (inputs.tf32) rate = device.tf32;
  }
  const double flops = cost.rows ? share : 1;
  const double computing =
      flops * (cost.product_flops / (rate * device.product_share) + cost.flops / device.float32);
  const double moving = (share * cost.bytes + cost.fixed_bytes) / (device.bandwidth * device.bandwidth_share);
  return std::max(computing, moving) + device.launch;
}

double end_of_transfers(const std::vector<Transfer>& transfers) {
  double end = 0;
  for (const Transfer& transfer : transfers) end = std::max(transfer.ready, end) + transfer.seconds;
  return end;
}

Prediction predict(const PlanData& plan, const CostInputs& inputs) {
  const Model model(plan, inputs);
  const int64_t replicas = plan.replication ? plan.replication->replicas : 1;
  const Prediction alone = model.on(1, 1);
  Prediction result = model.on(replicas, 1);
  const auto own = static_cast<double>(model.rows());
  const bool known = plan.replication && plan.replication->batch_rows > 0;
  const double rows = known ? static_cast<double>(plan.replication->batch_rows) : own;
  compare(result, rows, alone, own);
  return result;
}

std::vector<Prediction> scaling(const PlanData& plan, const CostInputs& inputs, Scaling how, int64_t up_to) {
  if (!plan.replication)
    throw Error(
        "scaling: this plan was made for one device and has no exchange of gradients; compile it for more: "
        "plan_for({.devices = 8})");
  if (up_to < 1)
    throw Error(fmt::format("scaling: the number of replicas is {}; it must be at least 1", up_to));
  const Model model(plan, inputs);
  const auto own = static_cast<double>(model.rows());
  const int64_t batch = plan.replication->batch_rows;
  std::vector<Prediction> results;
  Prediction alone;
  for (int64_t replicas = 1; replicas <= up_to; replicas *= 2) {
    double share = 1, rows = own * static_cast<double>(replicas);
    if (how == Scaling::strong) {
      if (replicas > batch) break;
      share = static_cast<double>((batch + replicas - 1) / replicas) / own;
      rows = static_cast<double>(batch);
    }
    Prediction result = model.on(replicas, share);
    if (replicas == 1) alone = result;
    compare(result, rows, alone, how == Scaling::strong ? rows : own);
    results.push_back(result);
  }
  return results;
}

}  // namespace internal

}  // namespace espalier
