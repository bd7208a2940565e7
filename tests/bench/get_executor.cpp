// bench_get_executor NAME: the time of get_executor() for the MLP in a new process, and of the first step,
// reported as NAME. The caller decides whether the file of measured products exists.
#include <espalier/espalier.h>

#include "mlp_task.h"
#include "nets.h"
#include "timing.h"
namespace esp = espalier;

int main(int argc, char** argv) {
  const std::string name = argc > 1 ? argv[1] : "cold";
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  esp::data::Distributor feed(
      {esp::randn({task::kRows, task::kInputs}), esp::randn({task::kRows, task::kOutputs})},
      {.batch_size = task::kBatch, .shuffle = true, .drop_remainder = true});
  auto [x, y] = feed.get_output_graphs<2>();
  const esp::Variable loss = esp::nn::MeanSquared()(nets::Mlp()(x), y);
  std::vector<esp::Executor> executor;
  const double freezing = bench::seconds([&] {
    executor.push_back(
        loss.get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(task::kLearningRate)}));
  });
  const double first_step = bench::seconds([&] { (void)executor[0].step(); });
  bench::report("get_executor_" + name + "_ms", freezing * 1e3);
  bench::report("first_step_" + name + "_ms", first_step * 1e3);
}
