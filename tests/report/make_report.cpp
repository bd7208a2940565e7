// Makes what run.sh looks at in a browser: make_report FOLDER [WIDTH OF LAYERS] [LAYERS]
#include <espalier/core/autograd.h>
#include <espalier/espalier.h>
#include <espalier/executor/plan_data.h>
#include <espalier/executor/report.h>

#include <filesystem>
#include <fstream>
#include <string>
namespace esp = espalier;

namespace {

/// The same training as one of 8 replicas, with the nodes named by hand which add up gradients.
esp::PlanData for_replicas(const esp::Variable& loss, int64_t rows) {
  const auto gradients = esp::new_parameter_gradients(loss);
  esp::PlanData plan = *esp::compile(
      {loss}, esp::optim::Adam({.lr = 1e-2}).build(gradients), {},
      {.device = esp::DeviceType::simulated, .without = {}, .dump = true, .gradient_bucket = gradients});
  const esp::BucketPlan& bucket = *plan.memory.bucket;
  const int64_t bytes = plan.memory.buffers[bucket.buffer].bytes, late = bytes / 4;
  uint32_t early = bucket.node - 1, arrival = bucket.node + 1;
  while (plan.graph.nodes[early].tag != esp::Tag::backward || !plan.memory.runs[early]) --early;
  while (!plan.memory.runs[arrival]) ++arrival;
  plan.replication = esp::Replication{.replicas = 8,
                                      .batch_rows = 8 * rows,
                                      .buckets = {{early, bytes - late}, {bucket.node, late}},
                                      .arrival = arrival};
  return plan;
}

}  // namespace

int main(int, char** arguments) {
  const std::filesystem::path folder = arguments[1];
  const int width = arguments[2] ? std::stoi(arguments[2]) : 128;
  const int layers = arguments[2] && arguments[3] ? std::stoi(arguments[3]) : 2;
  esp::seed(1);
  const esp::Tensor x = esp::randn({600, 64}), y = esp::tanh(esp::sum(x, 1, true)).value();
  const esp::data::Distributor feed({x, y}, {.batch_size = 64, .shuffle = true});
  const auto [batch, target] = feed.get_output_graphs<2>();

  esp::nn::Sequential network;
  for (int i = 0; i < layers; ++i) {
    network.append(esp::nn::Dense(width));
    network.append(esp::nn::Relu());
    network.append(esp::nn::Dropout(0.1));
  }
  network.append(esp::nn::Dense(1));
  const esp::Variable prediction = network(batch);
  const esp::Variable loss = esp::mean(esp::square(prediction - target));

  const esp::Executor executor = loss.get_executor(
      {.mode = esp::Mode::training, .optimizer = esp::optim::Adam({.lr = 1e-2}), .dump = true});
  executor.report(folder / "not_profiled.html");
  executor.profile(folder / "trace.json", {.steps = 12});  // the 10th batch is a short one
  executor.execute({.epochs = 3, .progress = false});
  executor.report(folder / "plan.html");
  const auto expect = [&](const char* file, const esp::Plan& plan, const std::string& more) {
    std::ofstream(folder / file) << "{\"steps\": " << plan.steps() << ", \"arena\": " << plan.arena_bytes()
                                 << ", \"live\": " << plan.largest_live_bytes()
                                 << ", \"passes\": " << plan.passes().size() << more << "}\n";
  };
  expect("expected.json", executor.plan(), "");

  const auto plan = std::make_shared<esp::PlanData>(for_replicas(loss, 64));
  esp::write_report(folder / "replicas.html", *plan, nullptr);
  expect("expected_replicas.json", esp::Plan(plan),
         ", \"replicas\": 8, \"rows\": 512, \"buckets\": 2, \"machines\": 4");
}
