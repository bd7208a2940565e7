// The MLP of ../mlp.cpp in libtorch, through its modules and its optimizer, written for speed as its users
// would: batches gathered with index_select, gradients dropped rather than cleared so that backward need not
// add to them.
#include <torch/torch.h>

#include <vector>

#include "../mlp_task.h"
#include "../timing.h"

int main(int argc, char** argv) {
  torch::set_num_threads(bench::threads());
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({task::kRows, task::kInputs});
  const torch::Tensor y = torch::randn({task::kRows, task::kOutputs});
  torch::nn::Sequential net(torch::nn::Linear(task::kInputs, task::kHidden), torch::nn::ReLU(),
                            torch::nn::Linear(task::kHidden, task::kOutputs));
  torch::nn::MSELoss loss_function;
  std::vector<torch::Tensor> parameters = net->parameters();
  torch::optim::SGD optimizer(parameters, task::kLearningRate);
  double sum = 0;

  auto train = [&](int epochs) {
    for (int epoch = 0; epoch < epochs; ++epoch) {
      const torch::Tensor order = torch::randperm(task::kRows, torch::kLong);
      for (int64_t begin = 0; begin + task::kBatch <= task::kRows; begin += task::kBatch) {
        const torch::Tensor rows = order.slice(0, begin, begin + task::kBatch);
        const torch::Tensor bx = x.index_select(0, rows), by = y.index_select(0, rows);
        for (torch::Tensor& parameter : parameters) parameter.mutable_grad().reset();
        const torch::Tensor loss = loss_function(net->forward(bx), by);
        loss.backward();
        optimizer.step();
        sum += loss.item<float>();
      }
    }
  };

  train(1);
  std::vector<double> times;
  for (int round = bench::rounds(argc, argv); round > 0; --round)
    times.push_back(bench::seconds([&] { train(task::kEpochs); }));
  bench::report("mlp_torch_us", bench::median(times) * 1e6 / task::kSteps);
  return sum > 0 ? 0 : 1;
}
