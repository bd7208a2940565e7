// bench_convolutions step|forward|step_in_order|forward_in_order [rounds]: a deep convolutional network on
// batches of 256 digits of 8×8: a convolution to 64 channels and twelve more, each with batch normalization
// and relu; a pooling; ten classes. In processor time, at one thread. "in_order" leaves out the pass
// channels_last.
#include <espalier/espalier.h>

#include <ctime>
#include <string>

#include "timing.h"
namespace esp = espalier;
namespace nn = espalier::nn;

namespace {

constexpr int64_t kBatch = 256, kChannels = 64, kMore = 12, kClasses = 10, kSteps = 4;

double processor_seconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

nn::Sequential network() {
  nn::Sequential net;
  for (int64_t i = 0; i <= kMore; ++i)
    net.append(nn::Conv2d(kChannels, {.kernel = 3, .padding = 1, .bias = false}), nn::BatchNorm(),
               nn::Relu());
  net.append(nn::MaxPool2d(esp::MaxPoolOptions{.kernel = 2}), nn::Flatten(), nn::Dense(kClasses));
  return net;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string contestant = argc > 1 ? argv[1] : "";
  const bool trains = contestant.starts_with("step"), forward = contestant.starts_with("forward");
  if (!trains && !forward)
    return std::fputs("usage: bench_convolutions step|forward|step_in_order|forward_in_order [rounds]\n",
                      stderr),
           2;
  const int rounds = bench::rounds(argc, argv);
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  const esp::data::Distributor feed({esp::randn({kBatch * kSteps, 1, 8, 8}),
                                     esp::zeros({kBatch * kSteps}, esp::int64)},
                                    {.batch_size = kBatch});
  const auto [x, y] = feed.get_output_graphs<2>();
  const nn::Sequential net = network();
  std::vector<std::string> without;
  if (contestant.ends_with("_in_order")) without = {"channels_last"};
  const auto executor = [&] {
    if (forward)
      return esp::mean(net(x)).get_executor({.mode = esp::Mode::inference, .without = without});
    return nn::SoftmaxCrossEntropy()(net(x), y).get_executor(
        {.mode = esp::Mode::training, .optimizer = esp::optim::Adam({.lr = 1e-3}), .without = without});
  }();
  const auto epoch = [&] { executor.execute({.epochs = 1, .progress = false}); };
  epoch();
  if (std::getenv("BENCH_PLAN")) std::puts(executor.plan().str().c_str());
  std::vector<double> times;
  for (int round = 0; round < rounds; ++round) {
    const double start = processor_seconds();
    epoch();
    times.push_back(processor_seconds() - start);
  }
  bench::report("convolutions_" + contestant + "_ms", bench::median(times) * 1e3 / kSteps);
  bench::report("convolutions_" + contestant + "_arena_kb",
                static_cast<double>(executor.plan().arena_bytes()) / 1024);
}
