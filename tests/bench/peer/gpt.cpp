// The transformer block of ../gpt.cpp in libtorch, written for speed: scaling and mask are part of the
// product of queries and keys.
#include "../gpt_task.h"

#include <torch/torch.h>

#include <cmath>
#include <limits>

#include "../timing.h"
using namespace gpt_task;

namespace {

struct BlockImpl : torch::nn::Module {
  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Linear qkv, out, up, down;
  torch::Tensor mask;

  BlockImpl()
      : norm1(torch::nn::LayerNormOptions({kWidth})),
        norm2(torch::nn::LayerNormOptions({kWidth})),
        qkv(kWidth, 3 * kWidth),
        out(kWidth, kWidth),
        up(kWidth, kHidden),
        down(kHidden, kWidth),
        mask(torch::full({1, kTokens, kTokens}, -std::numeric_limits<float>::infinity()).triu(1)) {
    register_module("norm1", norm1), register_module("norm2", norm2);
    register_module("qkv", qkv), register_module("out", out);
    register_module("up", up), register_module("down", down);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = x + attention(norm1(x));
    return y + down(torch::gelu(up(norm2(y))));
  }

  torch::Tensor attention(const torch::Tensor& x) {
    constexpr int64_t d = kWidth / kHeads;
    const int64_t batch = x.size(0);
    const auto heads = [&](const torch::Tensor& part) {
      return part.view({batch, kTokens, kHeads, d}).transpose(1, 2).reshape({-1, kTokens, d});
    };
    const auto parts = qkv(x).chunk(3, -1);
    const torch::Tensor scores =
        torch::baddbmm(mask, heads(parts[0]), heads(parts[1]).transpose(1, 2), 1, 1 / std::sqrt(double(d)));
    const torch::Tensor mixed = torch::bmm(torch::softmax(scores, -1), heads(parts[2]));
    return out(mixed.view({batch, kHeads, kTokens, d}).transpose(1, 2).reshape({batch, kTokens, kWidth}));
  }
};
TORCH_MODULE(Block);

}  // namespace

int main(int argc, char** argv) {
  torch::set_num_threads(bench::threads());
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({kRows, kTokens, kWidth}), y = torch::randn({kRows, kTokens, kWidth});
  Block net;
  std::vector<torch::Tensor> parameters = net->parameters();
  torch::optim::Adam optimizer(parameters, torch::optim::AdamOptions(kLearningRate));
  torch::nn::MSELoss loss_function;
  const auto epoch = [&] {
    const torch::Tensor order = torch::randperm(kRows, torch::kLong);
    for (int64_t begin = 0; begin < kRows; begin += kBatch) {
      const torch::Tensor rows = order.slice(0, begin, begin + kBatch);
      const torch::Tensor bx = x.index_select(0, rows), by = y.index_select(0, rows);
      for (torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
      const torch::Tensor loss = loss_function(net->forward(bx), by);
      loss.backward();
      optimizer.step();
      (void)loss.item<float>();
    }
  };
  bench::report("gpt_torch_ms", bench::median_seconds(bench::rounds(argc, argv), epoch) * 1e3 / kSteps);
  bench::report("gpt_torch_mb", bench::peak_megabytes());
}
