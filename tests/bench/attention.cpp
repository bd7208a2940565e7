// bench_attention TOKENS forward|backward [causal] [rounds]: scaled dot-product attention of 8 heads of width
// 64, eager, in processor time, at one thread, and the memory that the calls take beyond q, k and v.
// `backward` is the forward pass with the gradients of q, k and v.
#include <espalier/espalier.h>

#include <algorithm>
#include <string>

#include "timing.h"
namespace esp = espalier;

namespace {

constexpr int64_t kHeads = 8, kWidth = 64;

}  // namespace

int main(int argc, char** argv) {
  const int64_t tokens = argc > 1 ? std::atoll(argv[1]) : 0;
  const std::string contestant = argc > 2 ? argv[2] : "";
  const bool causal = argc > 3 && std::string(argv[3]) == "causal";
  if (tokens <= 0 || (contestant != "forward" && contestant != "backward"))
    return std::fputs("usage: bench_attention TOKENS forward|backward [causal] [rounds]\n", stderr), 2;
  const int rounds = bench::rounds(argc, argv);
  esp::set_num_threads(1);
  esp::seed(1);
  const esp::Shape shape{1, kHeads, tokens, kWidth};
  const esp::Variable q = esp::variable(esp::randn(shape)), k = esp::variable(esp::randn(shape)),
                      v = esp::variable(esp::randn(shape));
  const esp::Tensor g = esp::randn(shape);
  const auto call = [&] {
    const esp::Variable y = esp::scaled_dot_product_attention(q, k, v, {.causal = causal});
    if (contestant == "forward") return;
    const esp::Variable loss = esp::sum(y * g);
    for (const esp::Variable& x : {q, k, v}) (void)loss.gradient(x).value();
  };
  const double before = bench::peak_megabytes();
  const auto calls = static_cast<int>(std::clamp<int64_t>((1 << 23) / (tokens * tokens), 1, 400));
  call();
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const double begin = bench::processor_seconds();
    for (int i = 0; i < calls; ++i) call();
    times.push_back((bench::processor_seconds() - begin) / calls);
  }
  const std::string name =
      "attention_" + std::to_string(tokens) + "_" + contestant + (causal ? "_causal" : "");
  bench::report(name + "_ms", bench::median(times) * 1e3);
  bench::report(name + "_mb", bench::peak_megabytes() - before);
}
