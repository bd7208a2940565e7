// Feeding data: batches for an explicit loop, and a Distributor, which is part of the tree.
#include <espalier/espalier.h>

#include <iostream>
namespace esp = espalier;

int main() {
  const esp::Tensor x = esp::arange(10).reshape({-1, 1});
  const esp::Tensor y = (x * 2).value();
  esp::nn::Dense model(2, {.initializer = esp::nn::init::Constant(3)});

  // A range of batches, each of batch_size rows except the last.
  std::cout << "batches of a loop\n";
  for (const auto& [data, target] : esp::data::batches<2>({x, y}, {.batch_size = 4, .shuffle = true}))
    std::cout << data.shape() << " " << target.shape() << ", model gives " << model(data).shape() << "\n";

  // A Distributor has Variables as outputs, which stand for the current batch. Printing one takes the next
  // step; all outputs of one Distributor show the same step. After the last step, EndOfData is thrown.
  esp::data::Distributor feed({x, y}, {.batch_size = 1, .shuffle = false});
  auto [batch, label] = feed.get_output_graphs<2>();
  std::cout << "\nbatches of a Distributor\n";
  try {
    while (true) std::cout << batch << " " << label << "\n";
  } catch (const esp::EndOfData&) {
  }

  // Expressions of these outputs are computed again for every step.
  esp::Variable n = model(batch);
  for (int epoch = 1; epoch <= 2; ++epoch) {
    feed.reset();
    std::cout << "\nepoch " << epoch << ", model(batch)\n";
    try {
      while (true) std::cout << n << "\n";
    } catch (const esp::EndOfData&) {
    }
  }

  // An executor runs whole epochs. ConstantLoss uses the sum of the output as the loss.
  esp::Variable loss = esp::nn::ConstantLoss()(n);
  auto executor = loss.get_executor({.mode = esp::Mode::inference});
  const esp::History history = executor.execute({.epochs = 3});
  std::cout << "\nan executor over three epochs\n";
  for (const auto& epoch : history.epochs) std::cout << "the sum of all outputs: " << epoch.loss_sum << "\n";
}
