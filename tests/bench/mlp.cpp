// The MLP, eager and frozen, next to the time of its matrix products and a hand-written version. The
// contestants alternate, so that other load on the machine affects them equally.
#include <espalier/espalier.h>

#include "gemm.h"
#include "hand_written.h"
#include "mlp_task.h"
#include "nets.h"
#include "products.h"
#include "timing.h"
#include "workloads.h"
namespace esp = espalier;

int main(int argc, char** argv) {
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  const esp::Tensor x = esp::randn({task::kRows, task::kInputs});
  const esp::Tensor y = esp::randn({task::kRows, task::kOutputs});
  esp::optim::Sgd opt(task::kLearningRate);

  const nets::Mlp eager_net;
  const esp::nn::MeanSquared loss_function;
  auto batches =
      esp::data::batches<2>({x, y}, {.batch_size = task::kBatch, .shuffle = true, .drop_remainder = true});
  double sum = 0;
  auto eager_step = [&](const esp::Variable& bx, const esp::Variable& by) {
    esp::Variable loss = loss_function(eager_net(bx), by);
    loss.backward().update(opt);
    sum += loss.item();
  };
  auto train_eagerly = [&](int epochs) {
    for (int epoch = 0; epoch < epochs; ++epoch)
      for (const auto& [bx, by] : batches) eager_step(bx, by);
  };

  const workloads::Frozen frozen_mlp = workloads::mlp(),
                          rounded_mlp = workloads::mlp({.precision = esp::Precision::bfloat16});
  auto train_frozen = [&](int epochs) {
    for (int epoch = 0; epoch < epochs; ++epoch) frozen_mlp.run();
  };
  auto train_rounded = [&](int epochs) {
    for (int epoch = 0; epoch < epochs; ++epoch) rounded_mlp.run();
  };

  bench::GemmFloor floor(bench::kMlpProducts);
  floor.measure();
  bench::HandWritten by_hand(floor);

  train_eagerly(1), train_frozen(1), train_rounded(1),
      sum += by_hand.train(1);  // warm caches, allocators and predictors
  std::vector<double> eager, frozen, rounded, hand;
  for (int round = bench::rounds(argc, argv); round > 0; --round) {
    floor.measure();
    eager.push_back(bench::seconds([&] { train_eagerly(task::kEpochs); }));
    frozen.push_back(bench::seconds([&] { train_frozen(task::kEpochs); }));
    rounded.push_back(bench::seconds([&] { train_rounded(task::kEpochs); }));
    hand.push_back(bench::seconds([&] { sum += by_hand.train(task::kEpochs); }));
  }

  const double step = 1e6 / task::kSteps;
  floor.print();
  bench::report("mlp_floor_us", floor.seconds() * 1e6);
  bench::report("mlp_hand_us", bench::median(hand) * step);
  bench::report("mlp_eager_us", bench::median(eager) * step);
  bench::report("mlp_executor_us", bench::median(frozen) * step);
  bench::report("mlp_bfloat16_us", bench::median(rounded) * step);
  const esp::Plan plan = frozen_mlp.executor.plan();
  bench::report("mlp_arena_kb", static_cast<double>(plan.arena_bytes()) / 1024);
  bench::report("mlp_largest_live_kb", static_cast<double>(plan.largest_live_bytes()) / 1024);
  for (const auto& [one_x, one_y] : batches) {
    // The peak memory of an eager step, less the memory before it.
    const int64_t before = esp::memory_stats().live_bytes;
    esp::reset_peak_memory();
    eager_step(one_x, one_y);
    bench::report("mlp_eager_peak_kb", static_cast<double>(esp::memory_stats().peak_bytes - before) / 1024);
    break;
  }
  return sum > 0 ? 0 : 1;
}
