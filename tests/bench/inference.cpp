// One row through the MLP: a frozen plan that is fed through a placeholder, and eagerly.
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
  const workloads::Frozen frozen = workloads::inference();

  const nets::Mlp net;
  const esp::Tensor x = esp::randn({1, task::kInputs});
  const auto eagerly = [&] {
    const esp::NoGrad no_grad;
    (void)net(x).value();
  };

  bench::GemmFloor floor(bench::kInferenceProducts, kRuns);
  std::vector<double> in_plan, eager;
  for (int round = bench::rounds(argc, argv); round > 0; --round) {
    in_plan.push_back(bench::median_seconds(kRuns, frozen.run));
    eager.push_back(bench::median_seconds(kRuns, eagerly));
    floor.measure();
  }
  floor.print();
  bench::report("inference_executor_us", bench::median(in_plan) * 1e6);
  bench::report("inference_eager_us", bench::median(eager) * 1e6);
  bench::report("inference_floor_us", floor.seconds() * 1e6);
}
