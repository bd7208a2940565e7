// bench_gpt eager|executor|bfloat16|floor [rounds]: training one transformer block. One contestant per
// process, so that its peak memory can be measured.
#include <espalier/espalier.h>

#include "gemm.h"
#include "nets.h"
#include "products.h"
#include "timing.h"
#include "workloads.h"
namespace esp = espalier;

namespace {

std::function<void()> eager_epoch() {
  using namespace gpt_task;
  const esp::Shape shape{kRows, kTokens, kWidth};
  const esp::Tensor x = esp::randn(shape), y = esp::randn(shape);
  return [batches =
              esp::data::batches<2>({x, y}, {.batch_size = kBatch, .shuffle = true, .drop_remainder = true}),
          net = nets::GptBlock(), optimizer = esp::optim::Adam(kLearningRate)]() mutable {
    for (const auto& [bx, by] : batches) {
      esp::Variable loss = esp::nn::MeanSquared()(net(bx), by);
      loss.backward().update(optimizer);
      (void)loss.item();
    }
  };
}

}  // namespace

int main(int argc, char** argv) {
  const std::string contestant = argc > 1 ? argv[1] : "";
  const int rounds = bench::rounds(argc, argv);
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  if (contestant == "floor") {
    bench::GemmFloor floor(bench::kGptProducts, 5);
    for (int round = 0; round < rounds; ++round) floor.measure();
    floor.print();
    bench::report("gpt_floor_ms", floor.seconds() * 1e3);
    return 0;
  }
  std::function<void()> epoch;
  if (contestant == "eager") epoch = eager_epoch();
  if (contestant == "executor" || contestant == "bfloat16") {
    const workloads::Frozen frozen = workloads::gpt(
        {.precision = contestant == "bfloat16" ? esp::Precision::bfloat16 : esp::Precision::float32});
    bench::report("gpt_arena_kb", static_cast<double>(frozen.executor.plan().arena_bytes()) / 1024);
    epoch = frozen.run;
  }
  if (!epoch) return std::fputs("usage: bench_gpt eager|executor|bfloat16|floor [rounds]\n", stderr), 2;
  bench::report("gpt_" + contestant + "_ms", bench::median_seconds(rounds, epoch) * 1e3 / gpt_task::kSteps);
  bench::report("gpt_" + contestant + "_mb", bench::peak_megabytes());
}
