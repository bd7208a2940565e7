// What kernels and all-reduces would take on a machine, held against numbers worked out by hand.
#include <regex>

#include "cost_model_plans.h"
#include "espalier/ops/recurrent/recurrence.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::internal::all_reduce_seconds;

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
  // Transposed operands have another inner size: 2 · 3 · 5 · 4.
  const esp::Variable y = esp::placeholder("y", {4, 5});
  BOOST_TEST(costs_of(esp::matmul(esp::transpose(x), y))[0].product_flops == 120);
  // A batch of two: 2 · 2 · 4 · 5 · 3; w is broadcast and read once.
  const esp::Variable batch = esp::placeholder("b", {2, 4, 3});
  const auto batched = costs_of(esp::matmul(batch, esp::broadcast_to(w, {2, 3, 5})));
  BOOST_REQUIRE(batched.size() == 1u);
  BOOST_TEST(batched[0].product_flops == 240);
  BOOST_TEST(batched[0].fixed_bytes == 4 * 15);
}

BOOST_AUTO_TEST_CASE(a_product_takes_as_long_as_the_machine_needs_for_its_type) {
  esp::CostInputs machine = seconds_and_bytes();
  machine.hardware.launch = 0;
  machine.hardware.float32 = 120, machine.hardware.float64 = 60, machine.hardware.half = 240;
  for (const auto& [dtype, seconds] :
       {std::pair{esp::float32, 1.0}, {esp::float64, 2.0}, {esp::float16, 0.5}, {esp::bfloat16, 0.5}}) {
    const esp::Variable x = esp::placeholder("x", {4, 3}, dtype),
                        w = esp::parameter(esp::ones({3, 5}, dtype));
    const esp::Plan plan = esp::matmul(x, w).plan_for({.mode = esp::Mode::inference});
    BOOST_TEST_CONTEXT(esp::name(dtype)) { check_close(plan.predict(machine).step, seconds); }
  }
}

BOOST_AUTO_TEST_CASE(decompositions) {
  const esp::Variable x = esp::placeholder("x", {2, 6, 4});  // for each element and each singular value
  BOOST_TEST(costs_of(esp::svdvals(x))[0].flops == 4 * (2 * 6 * 4) * 4);
  BOOST_TEST(costs_of(esp::svd(x).s)[0].flops == 20 * (2 * 6 * 4) * 4);
  const esp::Variable square = esp::placeholder("square", {2, 5, 5});
  BOOST_TEST(costs_of(esp::eigh(square).values)[0].flops == 10 * (2 * 5 * 5) * 5);
}

BOOST_AUTO_TEST_CASE(what_is_read_twice_counts_once) {
  const esp::Variable w = esp::parameter(esp::ones({3, 3}));
  const auto costs = costs_of(esp::matmul(w, w));
  BOOST_REQUIRE(costs.size() == 1u);
  BOOST_TEST(costs[0].fixed_bytes == 4 * (9 + 9));
  BOOST_TEST(costs[0].bytes == 0);
  BOOST_TEST(!costs[0].rows);
}

BOOST_AUTO_TEST_CASE(what_follows_a_product_or_goes_by_rows) {
  const esp::Variable x = esp::placeholder("x", {4, 3}), w = esp::parameter(esp::ones({3, 5})),
                      b = esp::parameter(esp::ones({5}));
  double flops = 0, product = 0;  // whether they are one kernel or two
  for (const esp::internal::NodeCost& cost : costs_of(esp::relu(esp::matmul(x, w) + b)))
    flops += cost.flops, product += cost.product_flops;
  BOOST_TEST(product == 120);
  BOOST_TEST(flops == 2 * 20);
  // For each row of five: its sum, the division by five, and the multiplication of each element.
  const auto rows =
      costs_of(esp::placeholder("y", {4, 5}) * (esp::sum(esp::placeholder("y", {4, 5}), 1, true) * 0.2));
  BOOST_REQUIRE(rows.size() == 1u);
  BOOST_TEST(rows[0].flops == 20 + 4 + 20);
}

BOOST_AUTO_TEST_CASE(gradients_are_as_large_with_few_rows) {
  // x·W1 reads x and W1 and writes h. The gradient of W1 reads x and the gradient of h, which has the size of
  // h.
  const esp::PlanData plan =
      trained(esp::DeviceType::cuda, {"fuse_pointwise", "fuse_matmul", "group_updates"});
  const auto costs = esp::internal::node_costs(plan);
  int products = 0;
  for (uint32_t i = 0; i < plan.graph.nodes.size(); ++i) {
    const esp::GraphNode& n = plan.graph.nodes[i];
    if (n.tag == esp::Tag::update) {
      BOOST_TEST(!costs[i].rows);
      BOOST_TEST(costs[i].bytes == 0);
    }
    if (costs[i].product_flops != 2.0 * rows * inputs * hidden) continue;
    ++products;
    BOOST_TEST(costs[i].rows);
    BOOST_TEST(costs[i].bytes == 4 * rows * (inputs + hidden));
    BOOST_TEST(costs[i].fixed_bytes == 4 * inputs * hidden);
  }
  BOOST_TEST(products == 2);
  // Nodes that only communicate compute nothing.
  const esp::PlanData waiting = replicated(2);
  const esp::internal::NodeCost wait = esp::internal::node_costs(waiting)[waiting.memory.gradient_wait];
  BOOST_TEST(wait.flops + wait.bytes + wait.fixed_bytes == 0);
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
  const auto scaled = costs_of(x * (esp::placeholder("a", {}) * esp::placeholder("b", {})));
  BOOST_REQUIRE(scaled.size() == 1u);
  BOOST_TEST(scaled[0].flops == 6 + 1);  // the factor once
  // A gather of three rows of 1,000: 3 indices of 8 bytes, 3 · 2 floats read, and as many written.
  const esp::Variable table = esp::parameter(esp::ones({1000, 2}));
  const auto picked = costs_of(esp::gather(table, esp::placeholder("i", {3}, esp::int64), 0));
  BOOST_REQUIRE(picked.size() == 1u);
  BOOST_TEST(picked[0].bytes == 24 + 24);
  BOOST_TEST(picked[0].fixed_bytes == 24);
}

BOOST_AUTO_TEST_CASE(products_in_attention_recurrences_and_convolutions) {
  const auto leaf = [](const esp::Shape& shape) { return esp::variable(esp::ones(shape)); };
  const auto products = [](const esp::Variable& y, const std::vector<esp::Variable>& of) {
    std::vector<esp::Variable> results{esp::sum(y)};
    for (const esp::Variable& each : of) results.push_back(results[0].gradient(each));
    return product_flops(*esp::compile(step_of(results), {}, {}));
  };
  const esp::Variable q = leaf({2, 4, 5, 3}), k = leaf({2, 2, 7, 3}), v = leaf({2, 2, 7, 6});
  const double along = 2.0 * 2 * 4 * 5 * 7;  // of one product, for each of the width
  BOOST_TEST(products(esp::scaled_dot_product_attention(q, k, v), {}) == along * (3 + 6));
  BOOST_TEST(products(esp::scaled_dot_product_attention(q, k, v), {q}) == along * (3 + 6 + 3 * 3 + 2 * 6));
  const esp::Variable x = leaf({3, 5, 4 * 8}), weight = leaf({4 * 8, 8}), h = leaf({5, 8}), c = leaf({5, 8});
  const esp::RecurrenceInputs in{.x = x, .weight = weight, .h = h, .c = c};
  const double steps = 2.0 * 3 * 5 * 4 * 8 * 8;
  BOOST_TEST(products(esp::recurrence(in, {}).h, {}) == steps);
  BOOST_TEST(products(esp::recurrence(in, {}).h, {h}) == 2 * steps);
  const esp::Variable images = leaf({2, 4, 5, 6}), kernels = leaf({6, 2, 3, 2});
  const double convolution = 2.0 * 2 * 6 * (2 * 5) * (2 * 3 * 2);
  const esp::Variable y = esp::conv(images, kernels, {.stride = {2, 1}, .groups = 2});
  BOOST_TEST(products(y, {}) == convolution);
  BOOST_TEST(products(y, {images, kernels}) == 3 * convolution);
}

BOOST_AUTO_TEST_CASE(products_of_a_step) {
  // Forward x·W1 and h·W2; backward the gradients of W2, h and W1.
  const double flops = 2.0 * rows * (2 * inputs * hidden + 3 * hidden * outputs);
  for (const auto device : {esp::DeviceType::cpu, esp::DeviceType::cuda}) {
    const esp::PlanData plan = trained(device);
    BOOST_TEST(product_flops(plan) == flops);
    const auto costs = esp::internal::node_costs(plan);
    for (uint32_t i = 0; i < plan.graph.nodes.size(); ++i) {
      const esp::GraphNode& n = plan.graph.nodes[i];
      const double work = costs[i].product_flops + costs[i].flops + costs[i].bytes + costs[i].fixed_bytes;
      const bool only_gathers = n.op->name() == "gradient_bucket";
      BOOST_TEST((work > 0) == (plan.memory.runs[i] && !only_gathers), "%" << i << " " << n.op->name());
      if (n.tag == esp::Tag::update) BOOST_TEST(!costs[i].rows);
    }
  }
  // Gradient descent fused into the product of the gradient, and without fusion.
  for (const std::vector<std::string>& without :
       {std::vector<std::string>{}, {"fuse_sgd", "fuse_pointwise", "group_updates", "fuse_matmul"}}) {
    const esp::Variable loss = small_loss();
    const auto plan = esp::compile(
        {.value = loss, .updates = esp::optim::Sgd(0.1).build(esp::new_parameter_gradients(loss))}, {},
        {.without = without});
    BOOST_TEST(product_flops(*plan) == flops);
    bool updates = false;
    const auto costs = esp::internal::node_costs(*plan);
    for (uint32_t i = 0; i < costs.size(); ++i) {
      if (plan->graph.nodes[i].op->name() != "matmul_update") continue;
      updates = true;
      BOOST_TEST(costs[i].rows);  // its operands depend on the batch
    }
    BOOST_TEST(updates == without.empty());
  }
}

BOOST_AUTO_TEST_CASE(plans_are_made_for_devices_that_are_not_there) {
  const auto graph = [](const esp::Plan& plan) {  // without the lines of the source
    return std::regex_replace(plan.dot(), std::regex("[a-z_]+\\.(cpp|h):[0-9]+"), "");
  };
  const auto planned = [&](esp::DeviceType device) {
    const esp::Variable loss = small_loss();
    return graph(loss.plan_for({.optimizer = esp::optim::Sgd(0.1), .device = device}));
  };
  const auto compiled = [&](esp::DeviceType device) {
    const esp::Variable loss = small_loss();
    const auto updates = esp::optim::Sgd(0.1).build(esp::new_parameter_gradients(loss));
    return graph(esp::Plan(esp::compile({.value = loss, .updates = updates}, {}, {.device = device})));
  };
  using enum esp::DeviceType;
  BOOST_TEST(planned(cuda) == compiled(cuda));
  BOOST_TEST(planned(cpu) == compiled(cpu));
  BOOST_TEST((planned(cuda) != planned(cpu)));  // gradient descent is part of a product on a CPU only
}

BOOST_AUTO_TEST_CASE(a_plan_alone_changes_nothing) {
  const esp::data::Distributor feed({numbers({8, 3}).to(esp::float32)}, {.batch_size = 4});
  const esp::Variable w = esp::parameter(esp::ones({3}), "w");
  const esp::Variable loss = esp::mean(esp::square(feed.get_output_graphs()[0] * w));
  const double before = loss.value().item();
  const int64_t live = esp::memory_stats().live_bytes;
  {
    const esp::Plan plan = loss.plan_for({.optimizer = esp::optim::Sgd(0.1), .devices = 4, .accumulate = 1});
    BOOST_TEST(plan.predict().replicas == 4);
    BOOST_TEST(plan.str().find("replicas: 4, 4 rows together") != std::string::npos, plan.str());
  }
  BOOST_TEST(esp::memory_stats().live_bytes == live);
  BOOST_TEST(loss.value().item() == before);
  BOOST_TEST(w.value().at<float>({0}) == 1.0f);
  // Micro-batches of one device, and inference.
  const esp::Plan parts = loss.plan_for({.optimizer = esp::optim::Sgd(0.1), .accumulate = 2});
  BOOST_TEST(parts.str().find("each in 2 micro-batches") != std::string::npos, parts.str());
  BOOST_TEST(loss.plan_for({.mode = esp::Mode::inference}).steps() < parts.steps());
}

BOOST_AUTO_TEST_CASE(plans_that_cannot_be_made) {
  const esp::Variable w = esp::parameter(esp::ones({3}), "w");
  const esp::Variable loss = esp::sum(w);
  const auto says_where = [](const char* what) { return says({what, "cost_model_test.cpp"}); };
  BOOST_CHECK_EXCEPTION(loss.plan_for({.devices = 0}), esp::Error, says_where("0 devices"));
  BOOST_CHECK_EXCEPTION(loss.plan_for({.devices = -2}), esp::Error, says_where("-2 devices"));
  BOOST_CHECK_EXCEPTION(loss.plan_for({.mode = esp::Mode::training}), esp::Error,
                        says_where("needs an optimizer"));
  BOOST_CHECK_EXCEPTION(loss.plan_for({.without = {"nothing"}}), esp::Error, says_where("no pass 'nothing'"));
  BOOST_CHECK_EXCEPTION(
      loss.plan_for({.optimizer = esp::optim::Sgd(0.1)}).report("/no/such/folder/plan.html"), esp::FileError,
      says_where("plan.html"));
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
  esp::internal::NodeCost cost{.product_flops = 1000, .bytes = 30, .fixed_bytes = 10, .rows = true};
  check_close(kernel_seconds(cost, machine), 20.25);
  // A tenth of the rows: 2 s; (3 + 10) / 5 = 2.6 s.
  check_close(kernel_seconds(cost, machine, 0.1), 2.85);
  check_close(kernel_seconds(cost, machine, 0), 2.25);  // parameters are read regardless of rows
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
  cost.flops = 300;  // the epilogue: 3 s more
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
  BOOST_CHECK_EXCEPTION(esp::internal::all_reduce_seconds({.name = "none"}, 1, 2), esp::Error,
                        says({"none"}));
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
  for (const esp::Hardware& gpu : {h100, h200}) {
    BOOST_TEST(gpu.float64 == 67e12);
    BOOST_TEST(gpu.product_share == 0.65);
    BOOST_TEST(gpu.bandwidth_share == 0.8);
    BOOST_TEST(gpu.launch == 2e-6);
  }
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

BOOST_AUTO_TEST_SUITE_END()
