// One row through the MLP: a frozen plan that is fed through a placeholder, two such plans over the same
// parameters in turn, and eagerly.
#include <espalier/espalier.h>

#include "gemm.h"
#include "nets.h"
#include "products.h"
#include "timing.h"
#include "workloads.h"
namespace esp = espalier;

int main(int argc, char** argv) {
  constexpr int kRuns = 1000;
  esp::set_num_threads(bench::threads());
  const workloads::Frozen frozen = workloads::inference(),
                          rounded = workloads::inference({.precision = esp::Precision::bfloat16});

  const nets::Mlp net, shared;
  const esp::Tensor x = esp::randn({1, task::kInputs});
  const auto eagerly = [&] {
    const esp::NoGrad no_grad;
    (void)net(x).value();
  };

  const auto executor = [&] { return shared(esp::placeholder("x", {1, task::kInputs})).get_executor(); };
  const esp::Executor one = executor(), other = executor();
  const auto turns = [&] {
    (void)one.run({{"x", x}});
    (void)other.run({{"x", x}});
  };

  // A layer whose parameters take longer to copy than to multiply.
  constexpr int64_t kWide = 2048;
  const esp::nn::Dense wide(kWide, kWide);
  const esp::Tensor row = esp::randn({1, kWide});
  const auto of_wide = [&] { return wide(esp::placeholder("x", {1, kWide})).get_executor(); };
  const esp::Executor wide_one = of_wide(), wide_other = of_wide();

  bench::GemmFloor floor(bench::kInferenceProducts, kRuns);
  std::vector<double> in_plan, in_16_bits, in_turn, eager, wide_alone, wide_in_turn;
  for (int round = bench::rounds(argc, argv); round > 0; --round) {
    in_plan.push_back(bench::median_seconds(kRuns, frozen.run));
    in_16_bits.push_back(bench::median_seconds(kRuns, rounded.run));
    in_turn.push_back(bench::median_seconds(kRuns, turns) / 2);
    eager.push_back(bench::median_seconds(kRuns, eagerly));
    wide_alone.push_back(bench::median_seconds(kRuns / 10, [&] { (void)wide_one.run({{"x", row}}); }));
    wide_in_turn.push_back(bench::median_seconds(kRuns / 10,
                                                 [&] {
                                                   (void)wide_one.run({{"x", row}});
                                                   (void)wide_other.run({{"x", row}});
                                                 }) /
                           2);
    floor.measure();
  }
  floor.print();
  bench::report("inference_executor_us", bench::median(in_plan) * 1e6);
  bench::report("inference_bfloat16_us", bench::median(in_16_bits) * 1e6);
  bench::report("inference_in_turn_us", bench::median(in_turn) * 1e6);
  bench::report("inference_wide_us", bench::median(wide_alone) * 1e6);
  bench::report("inference_wide_in_turn_us", bench::median(wide_in_turn) * 1e6);
  bench::report("inference_eager_us", bench::median(eager) * 1e6);
  bench::report("inference_floor_us", floor.seconds() * 1e6);
}
