// A weight of 512 x 512 that is used many times on one row each: time forward and backward, and the most
// memory beyond the values of the forward pass, eagerly and in a plan.
//   bench_shared_weight [uses] [rounds]
#include <espalier/espalier.h>

#include "timing.h"
namespace esp = espalier;

namespace {

constexpr int64_t kWidth = 512;

esp::Variable tree(const std::vector<esp::Variable>& rows, const esp::Variable& weight) {
  esp::Variable total = esp::sum(esp::square(esp::matmul(rows[0], weight)));
  for (size_t i = 1; i < rows.size(); ++i)
    total = total + esp::sum(esp::square(esp::matmul(rows[i], weight)));
  return total;
}

double megabytes(int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

}  // namespace

int main(int argc, char** argv) {
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  const int uses = argc > 2 ? std::atoi(argv[1]) : 400;
  const esp::Variable weight = esp::parameter((esp::randn({kWidth, kWidth}) * 0.04f).value());
  std::vector<esp::Variable> rows;
  for (int i = 0; i < uses; ++i) rows.emplace_back(esp::randn({1, kWidth}));
  std::vector<double> forward, backward;
  int64_t peak = 0;
  for (int round = bench::rounds(argc, argv); round >= 0; --round) {
    esp::Variable loss;
    forward.push_back(bench::seconds([&] { loss = tree(rows, weight); }));
    const int64_t before = esp::memory_stats().live_bytes;
    esp::reset_peak_memory();
    backward.push_back(bench::seconds([&] { loss.backward(); }));
    peak = esp::memory_stats().peak_bytes - before;
  }
  bench::report("shared_weight_forward_ms", bench::median(forward) * 1e3);
  bench::report("shared_weight_backward_ms", bench::median(backward) * 1e3);
  bench::report("shared_weight_peak_mb", megabytes(peak));
  const esp::Variable loss = tree(rows, weight);
  auto executor = loss.get_executor({.mode = esp::Mode::training, .optimizer = esp::optim::Sgd(1e-9)});
  bench::report("shared_weight_plan_arena_mb", megabytes(executor.plan().arena_bytes()));
  const auto step = [&] { (void)executor.execute({.epochs = 1, .progress = false}); };
  bench::report("shared_weight_plan_step_ms", bench::median_seconds(5, step) * 1e3);
}
