// Plans on paper: what kernels, all-reduces and steps would take, held against numbers worked out by hand.
#include <boost/test/unit_test.hpp>

#include <cmath>
#include <limits>
#include <numeric>

#include "espalier/core/autograd.h"
#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/data/distributor.h"
#include "espalier/executor/executor.h"
#include "espalier/executor/plan_data.h"
#include "espalier/executor/report.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/losses.h"
#include "espalier/ops/ops.h"
#include "espalier/optim/adam.h"
#include "espalier/optim/sgd.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

constexpr double inf = std::numeric_limits<double>::infinity();
constexpr int64_t rows = 16, inputs = 8, hidden = 32, outputs = 4;

/// A network with two products forward and three backward.
esp::Variable small_loss() {
  esp::seed(5);
  const esp::data::Distributor feed({esp::randn({64, inputs}), esp::randn({64, outputs})},
                                    {.batch_size = rows});
  const auto [x, y] = feed.get_output_graphs<2>();
  return esp::nn::MeanSquared()(esp::nn::Dense(outputs)(esp::tanh(esp::nn::Dense(hidden)(x))), y);
}

/// A plan that trains it by Adam, gradients side by side, for a device of that type.
esp::PlanData trained(esp::DeviceType device = esp::DeviceType::simulated,
                      const std::vector<std::string>& without = {}) {
  const esp::Variable loss = small_loss();
  const auto gradients = esp::new_parameter_gradients(loss);
  return *esp::compile({loss}, esp::optim::Adam(0.1).build(gradients), {},
                       {.device = device, .without = without, .gradient_bucket = gradients});
}

/// The same as one of some replicas, that exchange all gradients at once.
esp::PlanData replicated(int replicas, const std::vector<std::string>& without = {}) {
  esp::PlanData plan = trained(esp::DeviceType::simulated, without);
  const esp::BucketPlan& bucket = plan.memory.buckets.at(0);
  uint32_t arrival = bucket.node + 1;
  while (plan.graph.nodes[arrival].tag != esp::Tag::update || !plan.memory.runs[arrival]) ++arrival;
  plan.replication = esp::Replication{.replicas = replicas,
                                      .batch_rows = rows * replicas,
                                      .buckets = {{bucket.node, plan.memory.buffers[bucket.buffer].bytes}},
                                      .arrival = arrival};
  return plan;
}

/// Every kernel takes a second, whatever it does, and the network carries a byte a second.
esp::CostInputs seconds_and_bytes() {
  return {.hardware = {.name = "clock",
                       .float32 = inf,
                       .float64 = inf,
                       .tf32 = inf,
                       .half = inf,
                       .bandwidth = inf,
                       .launch = 1},
          .network = {.name = "wire", .levels = {{.name = "wire", .bandwidth = 1}}}};
}

/// The nodes of a plan that run, in order.
std::vector<uint32_t> running(const esp::PlanData& plan) {
  std::vector<uint32_t> nodes;
  for (uint32_t i = 0; i < plan.graph.nodes.size(); ++i)
    if (plan.memory.runs[i]) nodes.push_back(i);
  return nodes;
}

/// The costs of what runs in a plan for one value.
std::vector<esp::NodeCost> costs_of(const esp::Variable& value) {
  const auto plan = esp::compile({value}, {}, {}, {.inference = true, .without = {}});
  const std::vector<esp::NodeCost> all = esp::node_costs(*plan);
  std::vector<esp::NodeCost> costs;
  for (const uint32_t i : running(*plan)) costs.push_back(all[i]);
  return costs;
}

double product_flops(const esp::PlanData& plan) {
  double flops = 0;
  for (const esp::NodeCost& cost : esp::node_costs(plan)) flops += cost.product_flops;
  return flops;
}

void check_close(double value, double expected) { BOOST_CHECK_CLOSE_FRACTION(value, expected, 1e-12); }

}  // namespace

BOOST_AUTO_TEST_SUITE(cost_model)

// Kernels

BOOST_AUTO_TEST_CASE(a_product) {
  const esp::Variable x = esp::placeholder("x", {4, 3}), w = esp::parameter(esp::ones({3, 5}));
  const auto costs = costs_of(esp::matmul(x, w));
  BOOST_REQUIRE(costs.size() == 1u);
  BOOST_TEST(costs[0].product_flops == 120);  // 2 · 4 · 5 · 3
  BOOST_TEST(costs[0].flops == 0);
  BOOST_TEST(costs[0].bytes == 4 * (12 + 20));  // x and the result
  BOOST_TEST(costs[0].fixed_bytes == 4 * 15);   // w
  BOOST_TEST(costs[0].rows);
  // Of transposed operands the inner size is elsewhere: 2 · 3 · 5 · 4.
  const esp::Variable y = esp::placeholder("y", {4, 5});
  BOOST_TEST(costs_of(esp::matmul(esp::transpose(x), y))[0].product_flops == 120);
  // A batch of two: 2 · 2 · 4 · 5 · 3; w is shown twice and read once.
  const esp::Variable batch = esp::placeholder("b", {2, 4, 3});
  const auto batched = costs_of(esp::matmul(batch, esp::broadcast_to(w, {2, 3, 5})));
  BOOST_REQUIRE(batched.size() == 1u);
  BOOST_TEST(batched[0].product_flops == 240);
  BOOST_TEST(batched[0].fixed_bytes == 4 * 15);
}

BOOST_AUTO_TEST_CASE(elements_and_rows_of_a_table) {
  const esp::Variable x = esp::placeholder("x", {6}), y = esp::placeholder("y", {6});
  const auto one = costs_of(esp::concat({x, y}));  // reads 12 floats and writes 12
  BOOST_REQUIRE(one.size() == 1u);
  BOOST_TEST(one[0].flops == 24);
  BOOST_TEST(one[0].bytes == 96);
  const auto fused = costs_of(esp::tanh(x * y) + x);  // three operations on 6 elements
  BOOST_REQUIRE(fused.size() == 1u);
  BOOST_TEST(fused[0].flops == 18);
  BOOST_TEST(fused[0].bytes == 4 * 18);  // x once, y, the result
  // Of a table of 1,000 rows it reads three: 3 indices of 8 bytes, 3 · 2 floats there, and as many here.
  const esp::Variable table = esp::parameter(esp::ones({1000, 2}));
  const auto picked = costs_of(esp::gather(table, esp::placeholder("i", {3}, esp::int64), 0));
  BOOST_REQUIRE(picked.size() == 1u);
  BOOST_TEST(picked[0].bytes == 24 + 24);
  BOOST_TEST(picked[0].fixed_bytes == 24);
}

BOOST_AUTO_TEST_CASE(products_of_a_step) {
  // Forward x·W1 and h·W2; backward the gradients of W2, h and W1.
  const double flops = 2.0 * rows * (2 * inputs * hidden + 3 * hidden * outputs);
  for (const auto device : {esp::DeviceType::cpu, esp::DeviceType::simulated}) {
    const esp::PlanData plan = trained(device);
    BOOST_TEST(product_flops(plan) == flops);
    const auto costs = esp::node_costs(plan);
    for (uint32_t i = 0; i < plan.graph.nodes.size(); ++i) {
      const esp::GraphNode& n = plan.graph.nodes[i];
      const double work = costs[i].product_flops + costs[i].flops + costs[i].bytes + costs[i].fixed_bytes;
      const bool only_gathers = n.op->name() == "gradient_bucket";
      BOOST_TEST((work > 0) == (plan.memory.runs[i] && !only_gathers), "%" << i << " " << n.op->name());
      if (n.tag == esp::Tag::update) BOOST_TEST(!costs[i].rows);
    }
  }
  // Gradient descent in one product with the gradient, and without passes that join anything.
  for (const std::vector<std::string>& without :
       {std::vector<std::string>{}, {"fuse_sgd", "fuse_pointwise", "group_updates", "fuse_matmul"}}) {
    const esp::Variable loss = small_loss();
    const auto plan = esp::compile({loss}, esp::optim::Sgd(0.1).build(esp::new_parameter_gradients(loss)), {},
                                   {.without = without});
    BOOST_TEST(product_flops(*plan) == flops);
    bool updates = false;
    for (const esp::GraphNode& n : plan->graph.nodes) updates |= n.op->name() == "matmul_update";
    BOOST_TEST(updates == without.empty());
  }
}

BOOST_AUTO_TEST_CASE(plans_for_simulated_gpus_are_those_for_gpus) {
  // Gradient descent is part of a product on a CPU only.
  const auto descent = [](esp::DeviceType device) {
    const esp::Variable loss = small_loss();
    const auto updates = esp::optim::Sgd(0.1).build(esp::new_parameter_gradients(loss));
    const auto plan = esp::compile({loss}, updates, {}, {.device = device, .without = {}});
    return plan->graph.str();
  };
  BOOST_TEST(descent(esp::DeviceType::simulated) == descent(esp::DeviceType::cuda));
  BOOST_TEST((descent(esp::DeviceType::simulated) != descent(esp::DeviceType::cpu)));
}

BOOST_AUTO_TEST_CASE(the_roofline) {
  esp::CostInputs machine{.hardware = {.float32 = 100,
                                       .float64 = 50,
                                       .tf32 = 400,
                                       .half = 1000,
                                       .product_share = 0.5,
                                       .bandwidth = 10,
                                       .bandwidth_share = 0.5,
                                       .launch = 0.25}};
  // 1,000 FLOPs at 100 · 0.5 take 20 s, 40 bytes at 10 · 0.5 take 8 s.
  esp::NodeCost cost{.product_flops = 1000, .bytes = 30, .fixed_bytes = 10, .rows = true};
  check_close(kernel_seconds(cost, machine), 20.25);
  // A tenth of the rows: 2 s; (3 + 10) / 5 = 2.6 s.
  check_close(kernel_seconds(cost, machine, 0.1), 2.85);
  check_close(kernel_seconds(cost, machine, 0), 2.25);  // parameters are read all the same
  machine.tf32 = true;
  check_close(kernel_seconds(cost, machine), 8.25);  // 1,000 / 200 = 5 s are less than those 8
  machine.hardware.bandwidth = inf;
  check_close(kernel_seconds(cost, machine), 5.25);
  cost.product_type = esp::float64;
  check_close(kernel_seconds(cost, machine), 40.25);
  for (const esp::DType half : {esp::float16, esp::bfloat16}) {
    cost.product_type = half;
    check_close(kernel_seconds(cost, machine), 2.25);
  }
  cost.flops = 300;  // what follows the product: 3 s more
  check_close(kernel_seconds(cost, machine), 5.25);
  cost.rows = false;
  check_close(kernel_seconds(cost, machine, 0.1), 5.25);
}

// All-reduces

BOOST_AUTO_TEST_CASE(rings_and_trees) {
  const esp::Network wire{.name = "wire", .levels = {{.bandwidth = 1000, .latency = 1e-3}}};
  BOOST_TEST(all_reduce_seconds(wire, 8000, 1) == 0);
  // Four ranks. Ring: 2 · 3 · (0.001 + 8000 / 4000); trees: 2 · (2 · 0.001 + 8).
  check_close(all_reduce_seconds(wire, 8000, 4), 12.006);
  // One byte. Ring: 6 · (0.001 + 0.00025) = 0.0075; trees: 2 · (0.002 + 0.001).
  check_close(all_reduce_seconds(wire, 1, 4), 0.006);
  // Five ranks have trees of three levels: 2 · (0.003 + 0.001).
  check_close(all_reduce_seconds(wire, 1, 5), 0.008);
  // Half of the bandwidth: 6 · (0.001 + 8000 / 2000).
  esp::Network half = wire;
  half.levels[0].bandwidth_share = 0.5;
  check_close(all_reduce_seconds(half, 8000, 4), 24.006);
}

BOOST_AUTO_TEST_CASE(nodes_of_a_network) {
  esp::Network cluster{.name = "pairs", .levels = {{.size = 2, .bandwidth = 1000}, {.bandwidth = 100}}};
  // Within a pair: 2 · 1000 / 2000. Between 4 pairs, half of the bytes: 2 · 3 · 500 / 400.
  check_close(all_reduce_seconds(cluster, 1000, 2), 1);
  check_close(all_reduce_seconds(cluster, 1000, 8), 1 + 7.5);
  check_close(all_reduce_seconds(cluster, 1000, 7), 1 + 7.5);  // the fourth pair counts as full
  // Messages that cost 1 s between nodes: 4 pairs take 2 · 3 s in a ring and 2 · 2 s in trees (and 2 · 500 /
  // 100).
  cluster.levels[1].latency = 10;
  check_close(all_reduce_seconds(cluster, 1000, 8), 1 + 50);  // 2 · (20 + 5) is less than 60 + 7.5
  cluster.levels[1].size = 4;
  check_close(all_reduce_seconds(cluster, 1000, 8), 1 + 50);
  BOOST_CHECK_EXCEPTION(all_reduce_seconds(cluster, 1000, 9), esp::Error, says({"pairs", "2 more"}));
  BOOST_CHECK_EXCEPTION(esp::all_reduce_seconds({.name = "none"}, 1, 2), esp::Error, says({"none"}));
}

BOOST_AUTO_TEST_CASE(more_replicas_and_more_bytes_take_longer) {
  for (const esp::CostInputs& machine : esp::presets::all())
    for (double bytes = 1; bytes < 1e11; bytes *= 10) {
      double before = 0;
      for (int64_t replicas = 2; replicas <= 4096; replicas *= 2) {
        const double seconds = all_reduce_seconds(machine.network, bytes, replicas);
        BOOST_TEST(seconds >= before);
        BOOST_TEST(all_reduce_seconds(machine.network, 2 * bytes, replicas) > seconds);
        before = seconds;
      }
    }
}

BOOST_AUTO_TEST_CASE(presets_are_as_on_data_sheets) {
  const esp::Hardware h100 = esp::presets::h100(), h200 = esp::presets::h200();
  BOOST_TEST(h100.float32 == 67e12);
  BOOST_TEST(h100.half == 989.5e12);
  BOOST_TEST(h100.tf32 == 494.5e12);
  BOOST_TEST(h200.half == h100.half);
  BOOST_TEST(h100.bandwidth == 3.35e12);
  BOOST_TEST(h200.bandwidth == 4.8e12);
  BOOST_TEST(h100.memory == 80e9);
  BOOST_TEST(h200.memory == 141e9);
  // A gigabyte over 8 GPUs: 2 · 7/8 · 1e9 / (450e9 · 0.8) s by NVLink; then an eighth of it between 2 nodes.
  const double within = 2 * 7 * (1.9e-6 + 1e9 / 8 / 360e9);
  double between[3];
  const std::vector<esp::CostInputs> all = esp::presets::all();
  BOOST_REQUIRE(all.size() == 4u);
  check_close(all_reduce_seconds(all[0].network, 1e9, 8), within);
  const double part = 1e9 / 8;
  between[0] = 2 * (4e-6 + part / 2 / (50e9 * 0.8));
  between[1] = 2 * (20e-6 + part / 2 / (100e9 / 64 * 0.8));
  between[2] = 2 * (20e-6 + part / 2 / (25e9 / 64 * 0.8));
  check_close(all_reduce_seconds(all[1].network, 1e9, 16), within + between[0]);
  check_close(all_reduce_seconds(all[2].network, 1e9, 16), within + between[1]);
  check_close(all_reduce_seconds(all[3].network, 1e9, 16), within + between[2]);
}

// Steps

BOOST_AUTO_TEST_CASE(transfers_queue) {
  BOOST_TEST(esp::end_of_transfers({}) == 0);
  BOOST_TEST(esp::end_of_transfers({{3, 4}}) == 7);
  BOOST_TEST(esp::end_of_transfers({{3, 4}, {5, 2}}) == 9);   // the second waits for the channel
  BOOST_TEST(esp::end_of_transfers({{3, 1}, {5, 2}}) == 7);   // the channel waits for the second
  BOOST_TEST(esp::end_of_transfers({{5, 2}, {3, 4}}) == 11);  // in their order
}

BOOST_AUTO_TEST_CASE(one_device) {
  const esp::PlanData plan = trained();
  const esp::Prediction p = predict(plan, seconds_and_bytes());
  BOOST_TEST(p.replicas == 1);
  BOOST_TEST(p.rows == rows);
  BOOST_TEST(p.step == static_cast<double>(running(plan).size()));
  BOOST_TEST(p.step == p.compute);
  BOOST_TEST(p.communication == 0);
  BOOST_TEST(p.exposed == 0);
  check_close(p.samples, rows / p.step);
  BOOST_TEST(p.efficiency == 1);
  const esp::Plan shown(std::make_shared<esp::PlanData>(plan));
  BOOST_TEST(shown.predict(seconds_and_bytes()).step == p.step);
  BOOST_CHECK_EXCEPTION(shown.scaling(), esp::Error, says({"one device", "simulated_gpus"}));
  BOOST_TEST(shown.str().find("replicas") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(two_buckets) {
  esp::PlanData plan = replicated(2, {"fuse_pointwise", "group_updates", "fuse_matmul"});
  const std::vector<uint32_t> nodes = running(plan);
  const auto steps = static_cast<double>(nodes.size());
  BOOST_REQUIRE(nodes.size() >= 8u);
  // Ring of two: b bytes at a byte a second take 2 · b / 2 s. Gradients are complete after 3 s and 5 s, and
  // wanted after 7 s.
  plan.replication->buckets = {{nodes[2], 4}, {nodes[4], 2}};
  plan.replication->arrival = nodes[7];
  esp::CostInputs machine = seconds_and_bytes();
  const auto exposed = [&] {
    const esp::Prediction p = predict(plan, machine);
    BOOST_TEST(p.replicas == 2);
    BOOST_TEST(p.compute == steps);
    BOOST_TEST(p.step == p.compute + p.exposed);
    check_close(p.efficiency, p.compute / p.step);
    check_close(p.samples, 2 * rows / p.step);
    return p.exposed;
  };
  BOOST_TEST(exposed() == 2);  // 3 to 7, 7 to 9
  BOOST_TEST(predict(plan, machine).communication == 6);
  machine.overlap = 0.5;
  BOOST_TEST(exposed() == 4);  // of the 4 s that were hidden, 2 are not
  machine.overlap = 0;
  BOOST_TEST(exposed() == 6);
  machine.overlap = 1;
  plan.replication->arrival = nodes[5];
  BOOST_TEST(exposed() == 4);
  plan.replication->buckets = {{nodes[0], 1}, {nodes[2], 1}};
  BOOST_TEST(exposed() == 0);  // 1 to 2, 3 to 4
  plan.replication->buckets = {{nodes[0], 1}, {nodes[4], 3}};
  BOOST_TEST(exposed() == 3);  // 5 to 8
  plan.replication->replicas = 1;
  const esp::Prediction alone = predict(plan, machine);
  BOOST_TEST(alone.communication == 0);
  BOOST_TEST(alone.step == steps);
}

BOOST_AUTO_TEST_CASE(sharded_states) {
  esp::PlanData plan = replicated(2);
  const std::vector<uint32_t> nodes = running(plan);
  plan.replication->buckets = {{nodes[2], 4}, {nodes[4], 2}};
  plan.replication->arrival = nodes[5];
  esp::CostInputs machine = seconds_and_bytes();
  const int64_t whole = predict(plan, machine).memory;
  machine.sharded_states = true;
  // Reduced and scattered from 3 to 5, and from 5 to 6; wanted after 5 s. Gathered after the update: 3 s.
  const esp::Prediction p = predict(plan, machine);
  BOOST_TEST(p.communication == 6);
  BOOST_TEST(p.exposed == 1 + 3);
  machine.overlap = 0;
  BOOST_TEST(predict(plan, machine).exposed == 6);

  // Adam has two states for each parameter, and each lies at a multiple of 64 bytes.
  int64_t parameters = 0, states = 0;
  for (const esp::GraphNode& n : plan.graph.nodes)
    if (n.leaf.defined()) {
      const int64_t bytes = (n.outputs[0].shape.elements() * 4 + 63) / 64 * 64;
      (n.op->name() == "weight" || n.op->name() == "bias" ? parameters : states) += bytes;
    }
  BOOST_TEST(parameters == 64 * (16 + 2 + 8 + 1));  // 8·32, 32, 32·4 and 4 floats
  BOOST_TEST(states >= 2 * parameters);
  BOOST_TEST(whole == parameters + states + plan.memory.arena_bytes);
  BOOST_TEST(p.memory == parameters + states / 2 + plan.memory.arena_bytes);
  plan.replication->replicas = 64;
  BOOST_TEST(predict(plan, machine).memory == parameters + states / 64 + plan.memory.arena_bytes);
  machine.hardware.memory = static_cast<double>(whole);
  machine.sharded_states = false;
  BOOST_TEST(predict(plan, machine).fits);
  machine.hardware.memory -= 1;
  BOOST_TEST(!predict(plan, machine).fits);

  // Updates, too, are shared out: here they take as long as their bytes.
  machine.hardware.launch = machine.hardware.memory = 0;
  machine.hardware.bandwidth = 1;
  plan.replication->replicas = 4;
  double updates = 0, others = 0;
  const auto costs = node_costs(plan);
  for (const uint32_t i : nodes)
    (plan.graph.nodes[i].tag == esp::Tag::update ? updates : others) += costs[i].bytes + costs[i].fixed_bytes;
  BOOST_TEST(updates > 0);
  check_close(predict(plan, machine).compute, updates + others);
  machine.sharded_states = true;
  check_close(predict(plan, machine).compute, updates / 4 + others);
}

BOOST_AUTO_TEST_CASE(weak_scaling) {
  const esp::PlanData plan = replicated(8);
  for (const esp::CostInputs& machine : esp::presets::all()) {
    const std::vector<esp::Prediction> all = scaling(plan, machine);
    BOOST_REQUIRE(all.size() == 13u);
    for (size_t i = 0; i < all.size(); ++i) {
      BOOST_TEST(all[i].replicas == int64_t{1} << i);
      BOOST_TEST(all[i].rows == rows);
      BOOST_TEST(all[i].compute == all[0].compute);
      BOOST_TEST(all[i].memory == all[0].memory);
      check_close(all[i].step, all[i].compute + all[i].exposed);
      check_close(all[i].efficiency, all[0].step / all[i].step);
      check_close(all[i].samples, static_cast<double>(rows * all[i].replicas) / all[i].step);
      BOOST_TEST(all[i].exposed <= all[i].communication);
      if (i) BOOST_TEST(all[i].communication > all[i - 1].communication);
      if (i) BOOST_TEST(all[i].efficiency <= all[i - 1].efficiency);
    }
    BOOST_TEST(all[0].communication == 0);
    BOOST_TEST(all[0].efficiency == 1);
    BOOST_TEST(predict(plan, machine).step == all[3].step);
  }
  BOOST_TEST(scaling(plan, esp::presets::h100_nvlink(), esp::Scaling::weak, 5).size() == 3u);  // 1, 2, 4
}

BOOST_AUTO_TEST_CASE(a_network_that_costs_nothing) {
  const esp::PlanData plan = replicated(4);
  esp::CostInputs machine = esp::presets::h100_nvlink();
  machine.network = {.name = "ideal", .levels = {{.bandwidth = inf}}};
  for (const esp::Prediction& p : scaling(plan, machine)) {
    BOOST_TEST(p.communication == 0);
    BOOST_TEST(p.exposed == 0);
    BOOST_TEST(p.efficiency == 1);
  }
}

BOOST_AUTO_TEST_CASE(strong_scaling) {
  const esp::PlanData plan = replicated(4);  // 64 rows together
  const std::vector<uint32_t> nodes = running(plan);
  esp::CostInputs machine = esp::presets::h100_nvlink();
  machine.network = {.name = "ideal", .levels = {{.bandwidth = inf}}};
  machine.hardware.float32 = machine.hardware.bandwidth = 1e9;  // so that work counts
  const std::vector<esp::Prediction> all = scaling(plan, machine, esp::Scaling::strong);
  BOOST_REQUIRE(all.size() == 7u);  // 1 to 64 replicas: then each has one row
  const double launches = machine.hardware.launch * static_cast<double>(nodes.size());
  const auto costs = node_costs(plan);
  double updates = 0;
  for (const uint32_t i : nodes)
    if (plan.graph.nodes[i].tag == esp::Tag::update) updates += kernel_seconds(costs[i], machine);
  for (size_t i = 0; i < all.size(); ++i) {
    BOOST_TEST(all[i].rows == 64.0 / static_cast<double>(all[i].replicas));
    BOOST_TEST(all[i].compute > launches);
    BOOST_TEST(all[i].compute > updates);
    check_close(all[i].samples, 64 / all[i].step);
    check_close(all[i].efficiency, all[0].step / (static_cast<double>(all[i].replicas) * all[i].step));
    if (!i) continue;
    BOOST_TEST(all[i].step < all[i - 1].step);
    BOOST_TEST(all[i].step > all[i - 1].step / 2);  // something does not shrink
    BOOST_TEST(all[i].memory < all[i - 1].memory);
  }
  BOOST_TEST(all[2].step == predict(plan, machine).step);
  // One kernel by hand: with a second for each, rows make no difference.
  for (const esp::Prediction& p : scaling(plan, seconds_and_bytes(), esp::Scaling::strong))
    BOOST_TEST(p.compute == static_cast<double>(nodes.size()));
}

BOOST_AUTO_TEST_CASE(inputs_that_make_no_sense) {
  const esp::PlanData plan = replicated(2);
  const auto refuses = [&](const std::function<void(esp::CostInputs&)>& change, const std::string& word) {
    esp::CostInputs machine = esp::presets::h100_nvlink();
    change(machine);
    BOOST_CHECK_EXCEPTION(predict(plan, machine), esp::Error, says({"predict", word}));
    BOOST_CHECK_EXCEPTION(scaling(plan, machine), esp::Error, says({"predict", word}));
  };
  refuses([](auto& m) { m.hardware = {}; }, "float32");
  refuses([](auto& m) { m.hardware.half = -1; }, "16 bits");
  refuses([](auto& m) { m.hardware.bandwidth = std::nan(""); }, "memory");
  refuses([](auto& m) { m.hardware.product_share = 1.5; }, "1.5");
  refuses([](auto& m) { m.hardware.launch = inf; }, "launch");
  refuses([](auto& m) { m.overlap = -0.1; }, "overlap");
  refuses([](auto& m) { m.network.levels[1].bandwidth = 0; }, "network");
  refuses([](auto& m) { m.network.levels[0].size = 0; }, "not the last");
  refuses([](auto& m) { m.network.levels[0].latency = -1; }, "latency");
  BOOST_CHECK_EXCEPTION(scaling(plan, esp::presets::h100_nvlink(), esp::Scaling::weak, 0), esp::Error,
                        says({"0 replicas"}));
}

// What is shown

BOOST_AUTO_TEST_CASE(text_and_report) {
  const esp::PlanData plan = replicated(8);
  const std::string text = esp::Plan(std::make_shared<esp::PlanData>(plan)).str();
  const auto has = [](const std::string& where, const std::string& what) {
    return where.find(what) != std::string::npos;
  };
  BOOST_TEST(has(text, "replicas: 8, 128 rows together; gradients in 1 bucket\n"));
  BOOST_TEST(has(text, std::to_string(plan.replication->buckets[0].bytes) + " bytes complete after %"));
  const std::string html = esp::report_html(plan, nullptr);
  BOOST_TEST(has(html, "<a href=\"#scaling\">"));
  for (const char* part : {"bucket-table", "machine-table", "scaling-weak", "scaling-strong"})
    BOOST_TEST(has(html, std::string("id=\"") + part + "\""));
  for (const esp::CostInputs& machine : esp::presets::all()) {
    BOOST_TEST(has(text, machine.network.name));
    BOOST_TEST(has(html, machine.hardware.name + ", " + machine.network.name));
  }
  size_t points = 0;
  for (size_t at = html.find("<circle"); at != std::string::npos; at = html.find("<circle", at + 1)) ++points;
  BOOST_TEST(points == 4u * 3 * (13 + 8));  // machines, panels; 1 to 4,096 and 1 to 128 replicas
  BOOST_TEST(!has(esp::report_html(trained(), nullptr), "id=\"scaling\""));
}

BOOST_AUTO_TEST_SUITE_END()
