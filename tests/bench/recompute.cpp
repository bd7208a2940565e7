// A chain of blocks (convolution of 16 channels over 32 images of 16×16, batch normalization, tanh), as it is
// and with each block by recompute(): time and peak memory beyond the parameters of a forward and backward
// pass, eagerly.
//   bench_recompute [blocks] [rounds]
#include <espalier/espalier.h>

#include "timing.h"
namespace esp = espalier;
namespace nn = espalier::nn;

int main(int argc, char** argv) {
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  const int blocks = argc > 1 ? std::max(1, std::atoi(argv[1])) : 16;
  std::vector<nn::Sequential> chain;
  for (int i = 0; i < blocks; ++i)
    chain.push_back(nn::Sequential{nn::Conv2d(16, 16, {.kernel = 3, .padding = 1, .bias = false}),
                                   nn::BatchNorm(16), nn::Tanh()});
  const esp::Variable images = esp::randn({32, 16, 16, 16});
  for (const bool again : {false, true}) {
    const auto pass = [&] {
      esp::Variable x = images;
      for (const nn::Sequential& block : chain) x = again ? esp::recompute(block, x) : block(x);
      esp::mean(esp::square(x)).backward();
    };
    pass();
    const int64_t before = esp::memory_stats().live_bytes;
    esp::reset_peak_memory();
    const double seconds = bench::median_seconds(bench::rounds(argc, argv), pass);
    const std::string name = again ? "recompute" : "no_recompute";
    bench::report(name + "_ms", seconds * 1e3);
    bench::report(name + "_peak_mb",
                  static_cast<double>(esp::memory_stats().peak_bytes - before) / (1 << 20));
  }
}
