// The network of ../document.h in libtorch: a training step of 256 digits of 8×8: torch_vision [batch]
// [rounds]
#include <torch/torch.h>

#include <vector>

#include "../timing.h"

namespace {

constexpr int kDeep = 30;  // convolutions of 128 channels, as in ../document.h

torch::nn::Sequential document() {
  torch::nn::Sequential net;
  int64_t before = 1;
  const auto block = [&](int64_t channels) {
    net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(before, channels, 3).padding(1)));
    net->push_back(torch::nn::BatchNorm2d(channels));
    net->push_back(torch::nn::Tanh());
    before = channels;
  };
  block(64);
  for (int i = 0; i < kDeep; ++i) block(128);
  block(512);
  net->push_back(torch::nn::AvgPool2d(2));
  net->push_back(torch::nn::Flatten());
  net->push_back(torch::nn::Linear(512 * 16, 1024));
  net->push_back(torch::nn::Tanh());
  net->push_back(torch::nn::Linear(1024, 10));
  return net;
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t batch = argc > 1 && std::atoi(argv[1]) > 0 ? std::atoi(argv[1]) : 256;
  torch::set_num_threads(bench::threads());
  torch::manual_seed(1);
  torch::nn::Sequential net = document();
  // Convolutions read and write channels last without copies.
  for (torch::Tensor& parameter : net->parameters())
    if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
  const torch::Tensor x = torch::randn({batch, 1, 8, 8}).contiguous(torch::MemoryFormat::ChannelsLast);
  const torch::Tensor y = torch::zeros({batch}, torch::kLong);
  std::vector<torch::Tensor> parameters = net->parameters();
  torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(1e-3));
  const auto step = [&] {
    for (torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    const torch::Tensor loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    loss.backward();
    optimizer.step();
    (void)loss.item<float>();
  };
  step();
  step();
  std::vector<double> wall, processor;
  for (int round = argc > 2 ? std::max(1, std::atoi(argv[2])) : 5; round > 0; --round) {
    const double start = bench::processor_seconds();
    wall.push_back(bench::seconds(step));
    processor.push_back(bench::processor_seconds() - start);
  }
  bench::report("vision_document_torch_ms", bench::median(wall) * 1e3);
  bench::report("vision_document_torch_processor_ms", bench::median(processor) * 1e3);
  bench::report("vision_document_torch_peak_mb", bench::peak_megabytes());
}
