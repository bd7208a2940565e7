// bench_thresholds [rounds]: from which size on two threads are worth their waking. A loop y = 2x + 1 shared
// out between both, whatever its size; and products of n × n matrices as `matmul` computes them.
#include <espalier/espalier.h>

#include <string>

#include "espalier/core/cpu/parallel.h"
#include "timing.h"
namespace esp = espalier;

int main(int argc, char** argv) {
  const int rounds = bench::rounds(argc, argv);
  constexpr int kRuns = 400;
  const auto both = [&](const std::string& name, const auto& run) {
    std::vector<double> one, two;
    for (int round = 0; round < rounds; ++round) {
      esp::set_num_threads(1);
      one.push_back(bench::median_seconds(kRuns, run));
      esp::set_num_threads(2);
      two.push_back(bench::median_seconds(kRuns, run));
    }
    bench::report(name + "_one_us", bench::median(one) * 1e6);
    bench::report(name + "_two_us", bench::median(two) * 1e6);
  };
  for (const int64_t n : {4, 8, 16, 32, 64, 128, 256}) {
    const esp::Tensor x = esp::randn({n * 1024}), y({n * 1024}, esp::float32);
    const auto* from = static_cast<const float*>(x.address());
    auto* to = static_cast<float*>(const_cast<void*>(y.address()));
    both("loop_" + std::to_string(n) + "Ki", [&] {
      esp::parallel_for(n * 1024, n * 512, [=](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) to[i] = from[i] * 2.0f + 1.0f;
      });
    });
  }
  for (const int64_t n : {64, 96, 128, 160, 200, 256}) {
    const esp::Variable x = esp::placeholder("x", {n, n});
    const esp::Tensor value = esp::randn({n, n});
    const esp::Executor product =
        esp::matmul(x, esp::parameter(esp::randn({n, n}))).get_executor({.mode = esp::Mode::inference});
    both("product_" + std::to_string(n), [&] { (void)product.run({{"x", value}}); });
  }
}
