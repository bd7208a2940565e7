// One network, trained twice: eagerly in a loop, and by an executor with a compiled plan.
#include <espalier/espalier.h>

#include <chrono>
#include <iomanip>
#include <iostream>
namespace esp = espalier;

double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Layers are members; the forward computation is plain C++. The same code serves both ways of training.
struct Network : esp::nn::Module {
  esp::Variable operator()(const esp::Variable& x) { return dense2(esp::relu(dense1(x))); }
  esp::nn::Dense dense1 = add("dense1", esp::nn::Dense(1000));
  esp::nn::Dense dense2 = add("dense2", esp::nn::Dense(10));
};

int main() {
  constexpr int kEpochs = 5;
  esp::seed(1);
  const esp::Tensor x = esp::randn({16384, 100});
  const esp::Tensor y = esp::randn({16384, 10});
  const esp::data::DistributorOptions batching{.batch_size = 256, .shuffle = true, .drop_remainder = true};
  esp::nn::MeanSquared loss_function;
  esp::optim::Sgd optimizer(0.001);
  std::cout << std::fixed << std::setprecision(3);

  {
    esp::seed(2);  // both start with the same parameters
    Network network;
    auto batches = esp::data::batches<2>({x, y}, batching);
    const double start = seconds();
    double mean = 0;
    for (int epoch = 0; epoch < kEpochs; ++epoch) {
      double sum = 0;
      int steps = 0;
      for (const auto& [batch_x, batch_y] : batches) {  // every pass is an epoch with a new order
        esp::Variable loss = loss_function(network(batch_x), batch_y);
        loss.backward().update(optimizer);
        sum += loss.item();
        ++steps;
      }
      mean = sum / steps;
    }
    std::cout << "eager     " << seconds() - start << " s, loss " << mean << "\n";
  }

  {
    esp::seed(2);
    Network network;
    esp::data::Distributor feed({x, y}, batching);
    auto [batch_x, batch_y] = feed.get_output_graphs<2>();
    esp::Variable loss = loss_function(network(batch_x), batch_y);
    const double start = seconds();
    auto executor = loss.get_executor({.mode = esp::Mode::training, .optimizer = optimizer});
    const esp::History history = executor.execute({.epochs = kEpochs});
    std::cout << "executor  " << seconds() - start << " s, loss " << history.epochs.back().loss_mean << "\n";
  }
}
