// bench_pointwise CONTESTANT [rounds]: an expression on 16M floats, with or without gradients, eager or
// frozen. One contestant per process, so that its peak memory can be measured.
#include <espalier/espalier.h>

#include <cstring>
#include <functional>

#include "pointwise_task.h"
#include "timing.h"
#include "workloads.h"
namespace esp = espalier;

namespace {

struct Eager {
  esp::Variable a = variable(), b = variable(), c = variable();

  static esp::Variable variable() { return esp::variable(esp::randn({pointwise_task::kElements})); }
  void forward() const {
    const esp::NoGrad no_grad;
    (void)pointwise_task::expression(a, b, c).value();
  }
  void backward() const {
    const esp::Variable loss = esp::sum(pointwise_task::expression(a, b, c));
    loss.backward();
    for (const esp::Variable& leaf : {a, b, c}) (void)loss.gradient(leaf).value();
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) return std::fputs("usage: bench_pointwise forward_eager|forward_executor|...\n", stderr), 2;
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  const std::string contestant = argv[1];
  std::function<void()> step;
  if (contestant == "forward_executor") {
    step = workloads::pointwise_forward().run;
  } else if (contestant == "backward_executor") {
    step = workloads::pointwise_backward().run;
  } else {
    const Eager eager;
    if (contestant == "forward_eager") step = [eager] { eager.forward(); };
    if (contestant == "backward_eager") step = [eager] { eager.backward(); };
  }
  if (!step) return std::fprintf(stderr, "there is no contestant %s\n", argv[1]), 2;
  bench::report("pointwise_" + contestant + "_ms",
                bench::median_seconds(bench::rounds(argc, argv), step) * 1e3);
  bench::report("pointwise_" + contestant + "_mb", bench::peak_megabytes());
}
