// Trains a classifier of handwritten digits twice: in an eager loop, and by an executor.
//   digits [digits.csv]
#include <espalier/espalier.h>

#include <chrono>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <vector>
namespace esp = espalier;

constexpr int kEpochs = 30;
const esp::data::DistributorOptions kBatching{.batch_size = 64, .shuffle = true};

struct Digits {
  esp::Tensor pixels;  // float32 [count, 64], from 0 (paper) to 1 (ink)
  esp::Tensor labels;  // int64 [count]
};

esp::nn::Sequential make_network() {
  return esp::nn::Sequential{esp::nn::Dense(128), esp::nn::Relu(), esp::nn::Dropout(0.2), esp::nn::Dense(10)};
}

struct Score {
  double loss, accuracy;
};

Score evaluate(esp::nn::Sequential network, const Digits& digits) {
  esp::NoGrad no_grad;   // no values are kept for gradients
  network.train(false);  // no dropout
  const esp::Variable output = network(digits.pixels);
  network.train(true);
  const esp::Variable correct = esp::equal(esp::argmax(output, 1), digits.labels);
  return {esp::nn::SoftmaxCrossEntropy()(output, digits.labels).item(),
          esp::mean(esp::cast(correct, esp::float32)).item()};
}

struct Result {
  esp::nn::Sequential network;
  std::vector<double> train_loss = {}, test_loss = {};  // per epoch
};

Result train_eagerly(const Digits& train, const Digits& test) {
  esp::seed(1);
  Result result{.network = make_network()};
  esp::nn::SoftmaxCrossEntropy loss_function;
  esp::optim::Adam optimizer({.lr = 3e-3});
  auto batches = esp::data::batches<2>({train.pixels, train.labels}, kBatching);
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    double sum = 0;
    for (const auto& [x, y] : batches) {
      esp::Variable loss = loss_function(result.network(x), y);
      loss.backward().update(optimizer);
      sum += loss.item() * static_cast<double>(x.shape()[0]);  // the last batch is short
    }
    result.train_loss.push_back(sum / static_cast<double>(train.labels.shape()[0]));
    result.test_loss.push_back(evaluate(result.network, test).loss);
  }
  return result;
}

Result train_frozen(const Digits& train, const Digits& test) {
  esp::seed(1);  // the same initial parameters and dropout
  Result result{.network = make_network()};
  esp::data::Distributor feed({train.pixels, train.labels}, kBatching);
  esp::data::Distributor held_out({test.pixels, test.labels}, {.batch_size = 64});
  auto [x, y] = feed.get_output_graphs<2>();
  esp::Variable loss = esp::nn::SoftmaxCrossEntropy()(result.network(x), y);
  auto executor = loss.get_executor(
      {.mode = esp::Mode::training, .optimizer = esp::optim::Adam({.lr = 3e-3}), .validation = held_out});
  for (const auto& epoch : executor.execute({.epochs = kEpochs}).epochs) {
    result.train_loss.push_back(epoch.loss_mean);
    result.test_loss.push_back(epoch.validation_loss);
  }
  return result;
}

int main(int argc, char** argv) try {
  // A line of the table is a digit: 64 pixels from 0 to 16, then the label.
  const esp::Tensor table = esp::data::read_csv(argc > 1 ? argv[1] : "samples/data/digits.csv");
  const esp::Tensor pixels = (esp::slice(table, 1, 0, 64) / 16).value();
  const esp::Tensor labels = esp::cast(esp::slice(table, 1, 64, 65), esp::int64).value().reshape({-1});

  // A fifth, drawn at random, is held out for testing.
  const auto [learn, hold] = esp::data::split({pixels, labels}, 0.8);
  const Digits train{learn[0], learn[1]}, test{hold[0], hold[1]};
  std::cout << train.labels.shape()[0] << " digits to learn from, " << test.labels.shape()[0]
            << " held out\n";

  auto seconds = [start = std::chrono::steady_clock::now()] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const Result eager = train_eagerly(train, test);
  const double eager_seconds = seconds();
  const Result frozen = train_frozen(train, test);
  const double frozen_seconds = seconds() - eager_seconds;

  const double frozen_accuracy = evaluate(frozen.network, test).accuracy;
  std::cout << std::fixed << std::setprecision(4) << "          eager             executor\n"
            << "epoch     train     test    train     test\n";
  for (size_t epoch = 0; epoch < kEpochs; epoch += epoch ? 5 : 4)  // 1, 5, 10, ...
    std::cout << std::setw(5) << epoch + 1 << std::setw(10) << eager.train_loss[epoch] << std::setw(9)
              << eager.test_loss[epoch] << std::setw(9) << frozen.train_loss[epoch] << std::setw(9)
              << frozen.test_loss[epoch] << "\n";
  std::cout << "eager     " << eager_seconds << " s, test accuracy " << evaluate(eager.network, test).accuracy
            << "\n"
            << "executor  " << frozen_seconds << " s, test accuracy " << frozen_accuracy << "\n";

  const auto file = std::filesystem::temp_directory_path() / "digits.safetensors";
  esp::nn::save(frozen.network, file);
  esp::nn::Sequential loaded = make_network();
  esp::nn::load(loaded, file);
  const double loaded_accuracy = evaluate(loaded, test).accuracy;
  std::cout << "loaded from " << file << ", test accuracy " << loaded_accuracy << "\n";

  // The exit status is 0 if the results are as expected.
  return loaded_accuracy == frozen_accuracy && loaded_accuracy >= 0.97 ? 0 : 1;
} catch (const esp::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
