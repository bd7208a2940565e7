// A small user program, whose compile time and size of the binary are measured.
#include <espalier/espalier.h>

#include <iostream>
namespace esp = espalier;

int main() {
  esp::seed(1);
  const esp::Tensor x = esp::randn({256, 20});
  const esp::Tensor y = esp::sum(esp::Variable(x) * x, 1, /*keep_dims=*/true).value();

  esp::nn::Sequential model{esp::nn::Dense(64), esp::nn::Relu(), esp::nn::Dense(1)};
  esp::nn::MeanSquared loss_function;
  esp::optim::Adam optimizer({.lr = 1e-2});

  for (int step = 0; step <= 100; ++step) {
    esp::Variable loss = loss_function(model(x), y);
    loss.backward().update(optimizer);
    if (step % 20 == 0) std::cout << "step " << step << " loss " << loss.item() << "\n";
  }

  // The same model in a plan, so that the binary contains the executor.
  esp::data::Distributor feed({x, y}, {.batch_size = 64});
  auto [bx, by] = feed.get_output_graphs<2>();
  esp::Variable loss = loss_function(model(bx), by);
  auto executor = loss.get_executor({.mode = esp::Mode::training, .optimizer = optimizer});
  std::cout << "frozen " << executor.execute({.epochs = 5}).epochs.back().loss_mean << "\n";
}
