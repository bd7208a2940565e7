// Predicted steps on machines and numbers of replicas, compared with numbers computed by hand.
#include "cost_model_plans.h"
#include "espalier/executor/report/report.h"

namespace esp = espalier;
using namespace espalier::testing;
using esp::internal::kernel_seconds;
using esp::internal::node_costs;
using esp::internal::predict;
using esp::internal::scaling;

BOOST_AUTO_TEST_SUITE(cost_model)

BOOST_AUTO_TEST_CASE(transfers_queue) {
  BOOST_TEST(esp::internal::end_of_transfers({}) == 0);
  BOOST_TEST(esp::internal::end_of_transfers({{3, 4}}) == 7);
  BOOST_TEST(esp::internal::end_of_transfers({{3, 4}, {5, 2}}) == 9);   // the second waits for the channel
  BOOST_TEST(esp::internal::end_of_transfers({{3, 1}, {5, 2}}) == 7);   // the channel waits for the second
  BOOST_TEST(esp::internal::end_of_transfers({{5, 2}, {3, 4}}) == 11);  // in their order
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
  BOOST_CHECK_EXCEPTION(shown.scaling(), esp::Error, says({"one device", "plan_for"}));
  BOOST_TEST(shown.str().find("replicas") == std::string::npos);
}

BOOST_AUTO_TEST_CASE(two_buckets) {
  esp::PlanData plan = replicated(2, {"fuse_pointwise", "group_updates", "fuse_matmul"});
  const std::vector<uint32_t> nodes = running(plan);
  const auto steps = static_cast<double>(nodes.size());
  BOOST_REQUIRE(nodes.size() >= 8u);
  // Ring of two: b bytes at 1 byte/s take 2 · b / 2 s. Gradients are complete after 3 s and 5 s, and needed
  // after 7 s.
  plan.memory.buckets = {{.node = nodes[2], .bytes = 4}, {.node = nodes[4], .bytes = 2}};
  plan.memory.gradient_wait = nodes[7];
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
  BOOST_TEST(exposed() == 4);  // 2 of the 4 s that overlapped are exposed
  machine.overlap = 0;
  BOOST_TEST(exposed() == 6);
  machine.overlap = 1;
  plan.memory.gradient_wait = nodes[5];
  BOOST_TEST(exposed() == 4);
  plan.memory.buckets = {{.node = nodes[0], .bytes = 1}, {.node = nodes[2], .bytes = 1}};
  BOOST_TEST(exposed() == 0);  // 1 to 2, 3 to 4
  plan.memory.buckets = {{.node = nodes[0], .bytes = 1}, {.node = nodes[4], .bytes = 3}};
  BOOST_TEST(exposed() == 3);  // 5 to 8
  plan.replication->replicas = 1;
  const esp::Prediction alone = predict(plan, machine);
  BOOST_TEST(alone.communication == 0);
  BOOST_TEST(alone.step == steps);
}

BOOST_AUTO_TEST_CASE(parts_of_a_batch) {
  esp::PlanData plan = replicated(2);
  const esp::Prediction whole = predict(plan, seconds_and_bytes());
  plan.replication->micro_batches = 2;
  plan.replication->batch_rows = 33;
  const esp::Prediction p = predict(plan, seconds_and_bytes());
  BOOST_TEST(p.replicas == 2);
  BOOST_TEST(p.rows == 17);  // of the replica with more rows
  double again = 0;
  for (const uint32_t i : running(plan)) again += plan.graph.nodes[i].tag != esp::Tag::update;
  BOOST_TEST(p.compute == whole.compute + again);                          // everything but the updates
  BOOST_TEST(p.memory == whole.memory + plan.memory.buckets.at(0).bytes);  // the accumulated gradients
  BOOST_TEST(p.communication == whole.communication);
}

BOOST_AUTO_TEST_CASE(sharded_states) {
  esp::PlanData plan = replicated(2);
  const std::vector<uint32_t> nodes = running(plan);
  plan.memory.buckets = {{.node = nodes[2], .bytes = 4}, {.node = nodes[4], .bytes = 2}};
  plan.memory.gradient_wait = nodes[5];
  esp::CostInputs machine = seconds_and_bytes();
  const int64_t whole = predict(plan, machine).memory;
  machine.sharded_states = true;
  // Reduced and scattered from 3 to 5, and from 5 to 6; needed after 5 s. Gathered after the update: 3 s.
  const esp::Prediction p = predict(plan, machine);
  BOOST_TEST(p.communication == 6);
  BOOST_TEST(p.exposed == 1 + 3);
  machine.overlap = 0;
  BOOST_TEST(predict(plan, machine).exposed == 6);

  // Adam has two states for each parameter, and each is aligned to 64 bytes.
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
  // A shard that is not a whole number of bytes is rounded up.
  BOOST_TEST(states % 7 != 0);
  for (const int64_t replicas : {3, 7, 64}) {
    plan.replication->replicas = static_cast<int>(replicas);
    BOOST_TEST(predict(plan, machine).memory ==
               parameters + (states + replicas - 1) / replicas + plan.memory.arena_bytes);
  }
  machine.hardware.memory = static_cast<double>(whole);
  machine.sharded_states = false;
  BOOST_TEST(predict(plan, machine).fits);
  machine.hardware.memory -= 1;
  BOOST_TEST(!predict(plan, machine).fits);

  // Updates are sharded, too: here their time is proportional to their bytes.
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
  machine.hardware.float32 = machine.hardware.bandwidth = 1e9;  // so that the work of kernels takes time
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
    BOOST_TEST(all[i].step > all[i - 1].step / 2);  // a part of the step is constant
    BOOST_TEST(all[i].memory < all[i - 1].memory);
  }
  BOOST_TEST(all[2].step == predict(plan, machine).step);
  // Rows that cannot be divided: the replica with most of them counts. 48 rows on 32 are 2.
  const std::vector<double> most_rows{48, 24, 12, 6, 3, 2};
  const std::vector<esp::Prediction> uneven = scaling(replicated(3), machine, esp::Scaling::strong);
  BOOST_REQUIRE(uneven.size() == most_rows.size());
  for (size_t i = 0; i < uneven.size(); ++i) {
    BOOST_TEST(uneven[i].rows == most_rows[i]);
    check_close(uneven[i].samples, 48 / uneven[i].step);
  }
  // If every kernel takes one second, the number of rows makes no difference.
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
  refuses([](auto& m) { m.network.levels[1].bandwidth_share = 2; }, "a level's bandwidth");
  refuses([](auto& m) { m.hardware.float64 = 0; }, "float64");
  refuses([](auto& m) { m.hardware.tf32 = 0; }, "tf32");
  refuses([](auto& m) { m.hardware.bandwidth_share = 0; }, "kernels reach");
  refuses([](auto& m) { m.hardware.memory = -1; }, "bytes of the hardware's memory");
  refuses([](auto& m) { m.network.levels[1].size = -1; }, "the size of a level");
  refuses([](auto& m) { m.overlap = 1.5; }, "overlap");
  refuses([](auto& m) { m.network.levels[0].size = 0; }, "not the last");
  refuses([](auto& m) { m.network.levels[0].latency = -1; }, "latency");
  BOOST_CHECK_EXCEPTION(scaling(plan, esp::presets::h100_nvlink(), esp::Scaling::weak, 0), esp::Error,
                        says({"the number of replicas is 0"}));
}

// Text and reports

BOOST_AUTO_TEST_CASE(text_and_report) {
  const esp::PlanData plan = replicated(8);
  const std::string text = esp::Plan(std::make_shared<esp::PlanData>(plan)).str();
  const auto has = [](const std::string& where, const std::string& what) {
    return where.find(what) != std::string::npos;
  };
  BOOST_TEST(has(text, "replicas: 8, 128 rows together; gradients in 1 bucket\n"));
  BOOST_TEST(has(text, std::to_string(plan.memory.buckets[0].bytes) + " bytes complete after %"));
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

BOOST_AUTO_TEST_CASE(a_plan_says_whether_cores_gain_by_replicas) {
  const auto text = [](int64_t rows_together, int64_t width) {
    const esp::data::Distributor feed({esp::randn({rows_together, width}), esp::randn({rows_together, 1})},
                                      {.batch_size = rows_together});
    const auto [x, y] = feed.get_output_graphs<2>();
    const esp::Variable loss =
        esp::nn::MeanSquared()(esp::nn::Dense(1)(esp::tanh(esp::nn::Dense(width)(x))), y);
    return loss.get_executor({.optimizer = esp::optim::Sgd(0.1), .devices = {esp::cpu(), esp::cpu()}})
        .plan()
        .str();
  };
  const std::string small = text(4, 4), large = text(1024, 128);
  for (const std::string& plan : {small, large})
    BOOST_TEST(plan.find("a core each: step ") != std::string::npos);
  BOOST_TEST(small.find("gain nothing") != std::string::npos);
  BOOST_TEST(large.find("gain nothing") == std::string::npos);
}

BOOST_AUTO_TEST_SUITE_END()
