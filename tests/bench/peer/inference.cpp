// One row through the MLP of ../inference.cpp, in libtorch.
#include <torch/torch.h>

#include "../mlp_task.h"
#include "../timing.h"

int main(int argc, char** argv) {
  torch::set_num_threads(bench::threads());
  torch::manual_seed(1);
  torch::nn::Sequential net(torch::nn::Linear(task::kInputs, task::kHidden), torch::nn::ReLU(),
                            torch::nn::Linear(task::kHidden, task::kOutputs));
  net->eval();
  const torch::Tensor x = torch::randn({1, task::kInputs});
  const torch::InferenceMode no_gradients;  // faster than NoGradGuard
  std::vector<double> times;
  for (int round = bench::rounds(argc, argv); round > 0; --round)
    times.push_back(bench::median_seconds(1000, [&] { (void)net->forward(x); }));
  bench::report("inference_torch_us", bench::median(times) * 1e6);
}
