// bench_loaded [rounds]: the time of a saved plan and of the plan that load_executor makes of its file, in
// turns: inference and epochs of training of a perceptron, a convolutional network, an LSTM and a block of a
// transformer. Processor time, since other programs may run.
#include <espalier/espalier.h>
#include <unistd.h>

#include <filesystem>

#include "nets.h"
#include "timing.h"
namespace esp = espalier;
namespace nn = espalier::nn;
namespace fs = std::filesystem;

namespace {

constexpr int64_t kBatch = 32, kBatches = 8;

using Net = std::function<esp::Variable(const esp::Variable&)>;

struct Task {
  std::string name;
  Net net;
  esp::Shape row;
};

std::vector<Task> tasks() {
  const nn::Sequential images{nn::Conv2d(16, {.kernel = {3, 3}, .padding = {1, 1}}),
                              nn::Relu(),
                              nn::MaxPool2d({.kernel = {2, 2}}),
                              nn::Conv2d(32, {.kernel = {3, 3}, .padding = {1, 1}}),
                              nn::Relu(),
                              nn::Flatten(),
                              nn::Dense(10)};
  const nn::Lstm lstm(64, 128, {.batch_first = true});
  return {{"mlp", nets::Mlp(), {task::kInputs}},
          {"images", images, {1, 28, 28}},
          {"lstm", [lstm](const esp::Variable& x) { return lstm(x).outputs; }, {20, 64}},
          {"gpt", nets::GptBlock({.tokens = 32, .width = 64, .heads = 4}), {32, 64}}};
}

esp::Shape batch_of(int64_t rows, esp::Shape row) {
  row.dims().insert(0, rows);
  return row;
}

/// Reports both, and their ratio: the median of those of turns.
void compare(const std::string& name, int rounds, const std::function<void()>& saved,
             const std::function<void()>& loaded) {
  const auto seconds = [](const std::function<void()>& run) {
    const double start = bench::processor_seconds();
    int runs = 0;
    do ++runs, run();
    while (bench::processor_seconds() - start < 0.05);
    return (bench::processor_seconds() - start) / runs;
  };
  saved(), loaded();
  std::vector<double> of_saved, of_loaded, ratios;
  for (int round = 0; round < rounds; ++round) {
    of_saved.push_back(seconds(saved)), of_loaded.push_back(seconds(loaded));
    ratios.push_back(of_loaded.back() / of_saved.back());
  }
  bench::report("loaded_" + name + "_saved_us", bench::median(of_saved) * 1e6);
  bench::report("loaded_" + name + "_us", bench::median(of_loaded) * 1e6);
  bench::report("loaded_" + name + "_ratio", bench::median(ratios));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = bench::rounds(argc, argv);
  const fs::path file = fs::temp_directory_path() / ("bench_loaded_" + std::to_string(getpid()) + ".plan");
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  for (const auto& [name, net, row] : tasks()) {
    const esp::Shape batch = batch_of(kBatch, row);
    const esp::Executor inference =
        net(esp::placeholder("x", batch)).get_executor({.mode = esp::Mode::inference});
    inference.save(file);
    const auto run = [x = esp::randn(batch)](const esp::Executor& executor) {
      return [=] { (void)executor.run({{"x", x}}); };
    };
    compare(name + "_inference", rounds, run(inference), run(esp::load_executor(file)));

    const esp::data::Distributor data({esp::randn(batch_of(kBatch * kBatches, row))}, {.batch_size = kBatch});
    const esp::Variable loss = esp::mean(esp::square(net(data.get_output_graphs()[0])));
    const esp::Executor training = loss.get_executor({.optimizer = esp::optim::Adam({.lr = 1e-4})});
    training.save(file);
    const auto train = [](const esp::Executor& executor) {
      return [=] { (void)executor.execute({.epochs = 1, .progress = false}); };
    };
    compare(name + "_epoch", rounds, train(training), train(esp::load_executor(file, {.data = {data}})));
  }
  fs::remove(file);
}
