// bench_sizes [rounds]: runs with ever new numbers of rows, each of which needs a plan: the time of the first
// run of a number and of the next one, and what 1,000 numbers leave in memory. The graphs are a network of
// three layers, without measured products and with them, and 150 pointwise operations.
#include <espalier/espalier.h>

#include <functional>
#include <string>

#include "timing.h"
namespace esp = espalier;

namespace {

constexpr int kSizes = 1000;

esp::Variable network(const esp::Variable& x) {
  static const esp::nn::Sequential net{esp::nn::Dense(256, 256), esp::nn::Relu(), esp::nn::Dense(256, 256),
                                       esp::nn::Relu(), esp::nn::Dense(256, 10)};
  return net(x);
}

esp::Variable pointwise(const esp::Variable& x) {
  esp::Variable y = x;
  for (int i = 0; i < 50; ++i) y = esp::tanh(y * 1.01 + x);
  return y;
}

void measure(const std::string& name, const std::function<esp::Variable(const esp::Variable&)>& tree,
             int sizes, bool tune) {
  const esp::Variable x = esp::placeholder("x", {-1, 256});
  const esp::Executor executor = tree(x).get_executor({.mode = esp::Mode::inference, .tune = tune});
  const esp::Tensor rows = esp::randn({sizes, 256});
  std::vector<double> first, next;
  (void)executor.run({{"x", rows.slice(0, 0, sizes)}});
  const double before = bench::resident_megabytes();
  for (int64_t i = 0; i + 1 < sizes; ++i) {
    const int64_t size = 1 + i * 389 % (sizes - 1);  // small and large ones in turn
    const esp::Tensor batch = rows.slice(0, 0, size);
    const auto run = [&] { (void)executor.run({{"x", batch}}); };
    first.push_back(bench::seconds(run));
    next.push_back(bench::seconds(run));
  }
  bench::report("sizes_" + name + "_first_run_us", bench::median(first) * 1e6);
  bench::report("sizes_" + name + "_next_run_us", bench::median(next) * 1e6);
  bench::report("sizes_" + name + "_memory_MB", bench::resident_megabytes() - before);
}

}  // namespace

int main(int argc, char** argv) {
  esp::set_num_threads(bench::threads());
  for (int round = bench::rounds(argc, argv); round > 0; --round) {
    measure("network", network, kSizes, false);
    measure("network_tuned", network, 100, true);
    measure("pointwise", pointwise, kSizes, false);
  }
}
