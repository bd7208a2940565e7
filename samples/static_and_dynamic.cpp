// A network of 32 convolutions, trained by a plan made once (static) and by a tree written anew for each
// step (dynamic): NNabla's document "Static vs Dynamic Neural Networks", with its network, data and solver.
//   static_and_dynamic [epochs] [batch size] [convolutions of 128 channels]
// The document has 30 epochs of batches of 256, for which a GPU is needed; without arguments there are
// four epochs of two batches of 16, at a tenth of its rate, since such batches are noisy.
#include <espalier/espalier.h>

#include <chrono>
#include <cmath>
#include <iostream>
#include <string>
#include <vector>
namespace esp = espalier;
using esp::nn::Parameters;

esp::Variable cnn(const Parameters& scope, const esp::Variable& x, int deep) {
  const auto block = [](const Parameters& conv, const esp::Variable& h, int64_t channels) {
    return esp::tanh(esp::nn::batch_norm(
        conv, esp::nn::convolution(conv, h, channels, {.kernel = {3, 3}, .padding = {1, 1}})));
  };
  esp::Variable h = block(scope["conv1"], x, 64);
  for (int i = 0; i < deep; ++i) h = block(scope["conv" + std::to_string(i + 2)], h, 128);  // unnecessarily
  h = esp::avg_pool(block(scope["conv_last"], h, 512), {.kernel = {2, 2}});
  h = esp::tanh(esp::nn::dense(scope["fc"], esp::flatten(h, 1), 1024));
  return esp::nn::dense(scope["classifier"], h, 10);
}

struct Run {
  double seconds = 0;
  std::vector<double> losses = {};  // means of epochs
};
std::ostream& operator<<(std::ostream& out, const Run& run) {
  out << run.seconds << " s, loss by epoch";
  for (const double loss : run.losses) out << " " << loss;
  return out << "\n";
}

int main(int argc, char** argv) {
  const int epochs = argc > 1 ? std::stoi(argv[1]) : 4, size = argc > 2 ? std::stoi(argv[2]) : 16,
            deep = argc > 3 ? std::stoi(argv[3]) : 30;
  const esp::Tensor table = esp::data::read_csv("samples/data/digits.csv");
  // All digits, or two batches if not told otherwise.
  const int64_t rows = argc > 1 ? table.shape()[0] : 2 * size;
  const esp::Tensor images = esp::slice(table, 1, 0, 64).reshape({-1, 1, 8, 8}).value().slice(0, 0, rows);
  const esp::Tensor labels = esp::slice(table, 1, 64, 65).cast(esp::int64).value().slice(0, 0, rows);
  const esp::data::DistributorOptions batching{.batch_size = size, .shuffle = true};
  const esp::nn::SoftmaxCrossEntropy loss_function;
  const esp::optim::Adam solver({.lr = argc > 1 ? 1e-3 : 1e-4});
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };

  const auto train_static = [&] {
    esp::seed(1);
    const Parameters scope;
    const esp::data::Distributor feed({images, labels}, batching);
    const auto [x, t] = feed.get_output_graphs<2>();
    const esp::Variable loss = loss_function(cnn(scope["cnn"], x, deep), t);
    const auto executor = loss.get_executor({.optimizer = solver});
    const double start = seconds();
    const auto history = executor.execute({.epochs = epochs, .progress = false}).epochs;
    Run run{.seconds = seconds() - start};
    for (const esp::EpochRecord& epoch : history) run.losses.push_back(epoch.loss_mean);
    return run;
  };

  const auto train_dynamic = [&] {
    esp::seed(1);
    const Parameters scope;
    const auto batches = esp::data::batches<2>({images, labels}, batching);
    const double start = seconds();
    Run run;
    for (int epoch = 0; epoch < epochs; ++epoch) {
      double sum = 0;
      for (const auto& [x, t] : batches) {
        const esp::Variable loss = loss_function(cnn(scope["cnn"], x, deep), t);
        loss.backward({.clear_buffers = true}).update(solver);
        sum += loss.item() * static_cast<double>(x.shape()[0]);
      }
      run.losses.push_back(sum / static_cast<double>(rows));
    }
    run.seconds = seconds() - start;
    return run;
  };

  const Run fixed = train_static(), dynamic = train_dynamic();
  std::cout << "static   " << fixed << "dynamic  " << dynamic;
  // Both compute the same; roundings grow with each step through such a depth.
  return std::abs(fixed.losses[0] - dynamic.losses[0]) < 0.01 * fixed.losses[0] ? 0 : 1;
}
