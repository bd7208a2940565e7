// bench_convolutions NETWORK_step|NETWORK_forward, also with _in_order behind it [rounds]: training steps and
// forward passes in processor time, at one thread. NETWORK: `deep`, thirteen convolutions of 64 channels over
// 256 images of 8×8, each with batch normalization and relu; or `digits`, two convolutions of 5×5 with biases
// and poolings over 64 images of 28×28. "_in_order" leaves out the pass channels_last.
#include <espalier/espalier.h>

#include <string>

#include "timing.h"
namespace esp = espalier;
namespace nn = espalier::nn;

namespace {

constexpr int64_t kChannels = 64, kMore = 12, kClasses = 10, kSteps = 4;

nn::Sequential deep() {
  nn::Sequential net;
  for (int64_t i = 0; i <= kMore; ++i)
    net.append(nn::Conv2d(kChannels, {.kernel = 3, .padding = 1, .bias = false}), nn::BatchNorm(),
               nn::Relu());
  net.append(nn::MaxPool2d(esp::MaxPoolOptions{.kernel = 2}), nn::Flatten(), nn::Dense(kClasses));
  return net;
}
nn::Sequential digits() {
  const esp::MaxPoolOptions halves{.kernel = 2};
  return nn::Sequential(nn::Conv2d(16, {.kernel = 5, .padding = 2}), nn::Relu(), nn::MaxPool2d(halves),
                        nn::Conv2d(32, {.kernel = 5, .padding = 2}), nn::Relu(), nn::MaxPool2d(halves),
                        nn::Flatten(), nn::Dense(kClasses));
}

}  // namespace

int main(int argc, char** argv) {
  const std::string contestant = argc > 1 ? argv[1] : "";
  const bool is_deep = contestant.starts_with("deep_"), is_digits = contestant.starts_with("digits_");
  const bool forward = contestant.find("_forward") != std::string::npos,
             trains = contestant.find("_step") != std::string::npos;
  if (is_deep == is_digits || forward == trains)
    return std::fputs("usage: bench_convolutions deep|digits_step|forward[_in_order] [rounds]\n", stderr), 2;
  const int rounds = bench::rounds(argc, argv);
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  const int64_t batch = is_deep ? 256 : 64, size = is_deep ? 8 : 28;
  const esp::data::Distributor feed(
      {esp::randn({batch * kSteps, 1, size, size}), esp::zeros({batch * kSteps}, esp::int64)},
      {.batch_size = batch});
  const auto [x, y] = feed.get_output_graphs<2>();
  const nn::Sequential net = is_deep ? deep() : digits();
  std::vector<std::string> without;
  if (contestant.ends_with("_in_order")) without = {"channels_last"};
  const auto executor = [&] {
    if (forward) return esp::mean(net(x)).get_executor({.mode = esp::Mode::inference, .without = without});
    return nn::SoftmaxCrossEntropy()(net(x), y).get_executor(
        {.mode = esp::Mode::training, .optimizer = esp::optim::Adam({.lr = 1e-3}), .without = without});
  }();
  const auto epoch = [&] { executor.execute({.epochs = 1, .progress = false}); };
  epoch();
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const double start = bench::processor_seconds();
    epoch();
    times.push_back(bench::processor_seconds() - start);
  }
  bench::report("convolutions_" + contestant + "_ms", bench::median(times) * 1e3 / kSteps);
  bench::report("convolutions_" + contestant + "_arena_kb",
                static_cast<double>(executor.plan().arena_bytes()) / 1024);
}
