// bench_lstm eager|executor [rounds]: training an LSTM (input 128, hidden 256) on 50 steps of 32 sequences by
// plain gradient descent. peer/lstm.cpp, peer/pytorch/lstm.py and peer/dynet/lstm.py are the same in
// libtorch, PyTorch and DyNet.
#include <espalier/espalier.h>

#include "timing.h"
namespace esp = espalier;

namespace {

constexpr int64_t steps = 50, batch = 32, in = 128, hidden = 256;
constexpr int each = 10;  // training steps in a measurement

std::function<void()> eager() {
  return
      [x = esp::randn({steps, batch, in}), net = esp::nn::Lstm(in, hidden), sgd = esp::optim::Sgd(0.01)]() {
        for (int k = 0; k < each; ++k) {
          esp::Variable loss = esp::mean(esp::square(net(x).outputs));
          loss.backward().update(sgd);
          (void)loss.item();
        }
      };
}

/// Over batches of a feed, which have the sequences first.
std::function<void()> frozen() {
  const esp::data::Distributor feed({esp::randn({each * batch, steps, in})}, {.batch_size = batch});
  const esp::nn::Lstm net(in, hidden, {.batch_first = true});
  const esp::Variable loss = esp::mean(esp::square(net(feed.get_output_graphs()[0]).outputs));
  return [feed, executor = loss.get_executor({.optimizer = esp::optim::Sgd(0.01)})]() {
    (void)executor.execute({.epochs = 1, .progress = false});
  };
}

}  // namespace

int main(int argc, char** argv) {
  const std::string contestant = argc > 1 ? argv[1] : "";
  esp::set_num_threads(bench::threads());
  esp::seed(1);
  std::function<void()> work;
  if (contestant == "eager") work = eager();
  if (contestant == "executor") work = frozen();
  if (!work) return std::fputs("usage: bench_lstm eager|executor [rounds]\n", stderr), 2;
  bench::report("lstm_" + contestant + "_steps_per_s",
                each / bench::median_seconds(bench::rounds(argc, argv), work));
}
