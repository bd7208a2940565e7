// The networks of ../vision.cpp in libtorch: torch_vision document|training|resnet18|mobilenet [batch]
// [rounds]. Images, kernels and activations are channels last, which libtorch reads and writes without
// copies.
#include <torch/torch.h>

#include <functional>
#include <string>
#include <vector>

#include "../timing.h"

namespace {

using torch::nn::Sequential;

constexpr int kDeep = 30;  // convolutions of 128 channels, as in ../document.h

Sequential document() {
  Sequential net;
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

/// A convolution without bias and its batch normalization.
void add_convolution(Sequential& net, int64_t in, int64_t out, int64_t kernel, int64_t stride,
                     int64_t groups = 1) {
  net->push_back(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, kernel)
                                       .stride(stride)
                                       .padding(kernel / 2)
                                       .groups(groups)
                                       .bias(false)));
  net->push_back(torch::nn::BatchNorm2d(out));
}

/// f(x) + x, of which x may pass through a part of its own, and relu of it where wanted.
struct ResidualImpl : torch::nn::Module {
  ResidualImpl(Sequential inner, Sequential outer, bool relu)
      : body(register_module("body", std::move(inner))),
        shortcut(register_module("shortcut", std::move(outer))),
        with_relu(relu) {}
  torch::Tensor forward(const torch::Tensor& x) {
    torch::Tensor y = body->forward(x).add_(shortcut->is_empty() ? x : shortcut->forward(x));
    return with_relu ? torch::relu_(y) : y;
  }
  Sequential body, shortcut;
  bool with_relu;
};
TORCH_MODULE(Residual);

struct PlainImpl : torch::nn::Module {
  explicit PlainImpl(Sequential inner) : body(register_module("body", std::move(inner))) {}
  torch::Tensor forward(const torch::Tensor& x) { return body->forward(x); }
  Sequential body;
};
TORCH_MODULE(Plain);

struct MeanImpl : torch::nn::Module {
  torch::Tensor forward(const torch::Tensor& x) { return x.mean({2, 3}); }
};
TORCH_MODULE(Mean);

Sequential resnet18() {
  Sequential net;
  add_convolution(net, 3, 64, 7, 2);
  net->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
  net->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)));
  int64_t before = 64;
  for (const int64_t channels : {64, 128, 256, 512})
    for (int block = 0; block < 2; ++block) {
      const int64_t stride = block == 0 && channels > 64 ? 2 : 1;
      Sequential body, shortcut;
      add_convolution(body, before, channels, 3, stride);
      body->push_back(torch::nn::ReLU(torch::nn::ReLUOptions(true)));
      add_convolution(body, channels, channels, 3, 1);
      if (before != channels) add_convolution(shortcut, before, channels, 1, stride);
      net->push_back(Residual(body, shortcut, true));
      before = channels;
    }
  net->push_back(Mean());
  net->push_back(torch::nn::Linear(512, 1000));
  return net;
}

Sequential mobilenet_v2() {
  struct Stage {
    int64_t expansion, channels, blocks, stride;
  };
  const auto relu6 = [] { return torch::nn::ReLU6(torch::nn::ReLU6Options(true)); };
  Sequential net;
  add_convolution(net, 3, 32, 3, 2);
  net->push_back(relu6());
  int64_t before = 32;
  for (const Stage& stage : {Stage{1, 16, 1, 1}, Stage{6, 24, 2, 2}, Stage{6, 32, 3, 2}, Stage{6, 64, 4, 2},
                             Stage{6, 96, 3, 1}, Stage{6, 160, 3, 2}, Stage{6, 320, 1, 1}})
    for (int64_t block = 0; block < stage.blocks; ++block) {
      const int64_t wide = before * stage.expansion, stride = block == 0 ? stage.stride : 1;
      Sequential body;
      if (stage.expansion > 1) {
        add_convolution(body, before, wide, 1, 1);
        body->push_back(relu6());
      }
      add_convolution(body, wide, wide, 3, stride, wide);
      body->push_back(relu6());
      add_convolution(body, wide, stage.channels, 1, 1);
      if (stride == 1 && before == stage.channels)
        net->push_back(Residual(body, Sequential(), false));
      else
        net->push_back(Plain(body));
      before = stage.channels;
    }
  add_convolution(net, before, 1280, 1, 1);
  net->push_back(relu6());
  net->push_back(Mean());
  net->push_back(torch::nn::Dropout(0.2));
  net->push_back(torch::nn::Linear(1280, 1000));
  return net;
}

std::function<void()> training(Sequential net, const torch::Tensor& x) {
  const torch::Tensor y = torch::zeros({x.size(0)}, torch::kLong);
  const std::vector<torch::Tensor> parameters = net->parameters();
  const auto optimizer = std::make_shared<torch::optim::Adam>(parameters, torch::optim::AdamOptions(1e-3));
  return [=]() mutable {
    for (const torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
    const torch::Tensor loss = torch::nn::functional::cross_entropy(net->forward(x), y);
    loss.backward();
    optimizer->step();
    (void)loss.item<float>();
  };
}

std::function<void()> inference(Sequential net, const torch::Tensor& x) {
  net->eval();
  return [=]() mutable {
    const torch::InferenceMode guard;
    (void)net->forward(x);
  };
}

}  // namespace

int main(int argc, char** argv) {
  const std::string network = argc > 1 ? argv[1] : "";
  const int64_t batch = argc > 2 ? std::atoi(argv[2]) : 0;
  torch::set_num_threads(bench::threads());
  torch::manual_seed(1);
  const auto images = [&](int64_t rows, int64_t channels, int64_t size) {
    return torch::randn({batch > 0 ? batch : rows, channels, size, size})
        .contiguous(torch::MemoryFormat::ChannelsLast);
  };
  const auto last = [](Sequential net) {
    for (torch::Tensor& parameter : net->parameters())
      if (parameter.dim() == 4) parameter.set_data(parameter.contiguous(torch::MemoryFormat::ChannelsLast));
    return net;
  };
  std::function<void()> run;
  if (network == "document") run = training(last(document()), images(256, 1, 8));
  if (network == "training") run = training(last(resnet18()), images(16, 3, 64));
  if (network == "resnet18") run = inference(last(resnet18()), images(1, 3, 224));
  if (network == "mobilenet") run = inference(last(mobilenet_v2()), images(1, 3, 224));
  if (!run)
    return std::fputs("usage: torch_vision document|training|resnet18|mobilenet [batch] [rounds]\n", stderr),
           2;
  run();
  run();
  std::vector<double> wall, processor;
  for (int round = argc > 3 ? std::max(1, std::atoi(argv[3])) : 5; round > 0; --round) {
    const double start = bench::processor_seconds();
    wall.push_back(bench::seconds(run));
    processor.push_back(bench::processor_seconds() - start);
  }
  const std::string name = "vision_" + network + "_torch";
  bench::report(name + "_ms", bench::median(wall) * 1e3);
  bench::report(name + "_processor_ms", bench::median(processor) * 1e3);
  bench::report(name + "_peak_mb", bench::peak_megabytes());
}
