// torch_lstm [rounds]: the LSTM of ../lstm.cpp in libtorch, by nn::LSTM.
#include <torch/torch.h>

#include <tuple>
#include <vector>

#include "../timing.h"

namespace {

constexpr int64_t kSteps = 50, kBatch = 32, kIn = 128, kHidden = 256;
constexpr int kEach = 10;  // training steps in a measurement

}  // namespace

int main(int argc, char** argv) {
  torch::set_num_threads(bench::threads());
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({kSteps, kBatch, kIn});
  torch::nn::LSTM net(kIn, kHidden);
  const std::vector<torch::Tensor> parameters = net->parameters();
  torch::optim::SGD sgd(parameters, 0.01);
  const auto work = [&] {
    for (int k = 0; k < kEach; ++k) {
      for (const torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
      const torch::Tensor loss = std::get<0>(net->forward(x)).square().mean();
      loss.backward();
      sgd.step();
      (void)loss.item<float>();
    }
  };
  bench::report("lstm_torch_steps_per_s", kEach / bench::median_seconds(bench::rounds(argc, argv), work));
}
