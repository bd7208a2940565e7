// Writes the reports that run.sh checks in a browser: make_report FOLDER [WIDTH OF LAYERS] [LAYERS]
#include <espalier/espalier.h>

#include <filesystem>
#include <fstream>
#include <string>
namespace esp = espalier;

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

  // A chart of a run.
  const esp::History history =
      loss.get_executor({.optimizer = esp::optim::Adam({.lr = 1e-2}),
                         .validation = feed,
                         .outputs = {{"mean_absolute_error", esp::mean(esp::abs(prediction - target))}}})
          .execute({.epochs = 4, .progress = false});
  history.write_svg(folder / "history.svg");
  std::ofstream expected(folder / "expected_history.json");
  const char* separator = "{\"losses\": [";
  for (const esp::EpochRecord& epoch : history.epochs) {
    expected << separator << epoch.loss_mean;
    separator = ", ";
  }
  expected << "], \"labels\": [\"loss\", \"validation_loss\", \"mean_absolute_error\", "
           << "\"validation_mean_absolute_error\"]}\n";

  // The plan of one of 8 replicas, on devices that are not there, which send their gradients in pieces.
  const esp::data::Distributor large({x, y}, {.batch_size = 512});
  const auto [rows, targets] = large.get_output_graphs<2>();
  const esp::Plan plan = esp::mean(esp::square(network(rows) - targets))
                             .plan_for({.optimizer = esp::optim::Adam({.lr = 1e-2}),
                                        .devices = 8,
                                        .replicas = {.bucket_bytes = 16 * 1024},
                                        .dump = true});
  plan.report(folder / "replicas.html");
  const std::string text = plan.str();
  int buckets = 0;
  for (size_t at = 0; (at = text.find("\ngradients: ", at)) != std::string::npos; ++at) ++buckets;
  expect("expected_replicas.json", plan,
         ", \"replicas\": 8, \"rows\": 512, \"buckets\": " + std::to_string(buckets) + ", \"machines\": 4");
}
