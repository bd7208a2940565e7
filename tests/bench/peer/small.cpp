// The program of ../weight/small.cpp in libtorch.
#include <torch/torch.h>

#include <iostream>

int main() {
  torch::manual_seed(1);
  const torch::Tensor x = torch::randn({256, 20});
  const torch::Tensor y = (x * x).sum(1, /*keepdim=*/true);

  torch::nn::Sequential model(torch::nn::Linear(20, 64), torch::nn::ReLU(), torch::nn::Linear(64, 1));
  torch::nn::MSELoss loss_function;
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(1e-2));

  for (int step = 0; step <= 100; ++step) {
    optimizer.zero_grad();
    const torch::Tensor loss = loss_function(model->forward(x), y);
    loss.backward();
    optimizer.step();
    if (step % 20 == 0) std::cout << "step " << step << " loss " << loss.item<float>() << "\n";
  }
}
