// A convolutional network that reads handwritten digits, which are turned and shifted a little in each epoch.
//   convolutional_network [seed]
#include <espalier/espalier.h>

#include <chrono>
#include <filesystem>
#include <iostream>
#include <string>
namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::data::transforms;

/// Kernels of 3 x 3; the width and the height of the image stay.
Sequential convolution(int64_t channels) {
  return Sequential{Conv2d(channels, {.kernel = 3, .padding = 1, .bias = false}), BatchNorm(), Relu()};
}

/// The kernels [n, 1, 3, 3] beside each other, eight in a row; black is the smallest number.
void draw(const esp::Variable& kernels, const std::filesystem::path& file) {
  const esp::Variable gray = (kernels - esp::min(kernels)) / (esp::max(kernels) - esp::min(kernels)) * 255;
  const esp::Variable framed = esp::pad(gray, {{1, 1}, {1, 1}}, {.value = 255});
  const esp::Variable tiles = esp::permute(esp::reshape(framed, {-1, 8, 5, 5}), {0, 2, 1, 3});
  const esp::Variable large = esp::interpolate(esp::reshape(tiles, {1, 1, -1, 8 * 5}),
                                               {.scale = {16}, .mode = esp::Interpolation::nearest});
  esp::data::write_image(file, large[0].value());
}

int main(int argc, char** argv) try {
  const uint64_t seed = argc > 1 ? std::stoull(argv[1]) : 1;
  esp::seed(seed);
  esp::set_num_threads(1);  // the images are small: a core is enough
  // A line of the table is a digit: 64 pixels from 0 to 16, then the label.
  const esp::Tensor table = esp::data::read_csv("samples/data/digits.csv");
  const esp::Tensor images = (esp::slice(table, 1, 0, 64) / 16).value().reshape({-1, 1, 8, 8});
  const esp::Tensor labels = esp::cast(esp::slice(table, 1, 64, 65), esp::int64).value().reshape({-1});
  const auto [train, test] = esp::data::split({images, labels}, 0.8);

  const auto digits = std::make_shared<esp::data::TensorDataset>(train);
  const auto augmented = esp::data::map(digits, Compose{RandomRotation(10), RandomCrop(8, {.padding = 1})});

  Sequential network{convolution(32),
                     convolution(64),
                     MaxPool2d({.kernel = 2}),
                     convolution(128),
                     MaxPool2d({.kernel = 2}),
                     Flatten(),
                     Dropout(0.3),
                     Dense(10)};
  const int64_t epochs = 30, batch_size = 64, steps = epochs * ((augmented->rows() + 63) / batch_size);
  const esp::optim::Adam optimizer({.lr = 4e-3, .schedule = esp::optim::one_cycle({.steps = steps})});
  const auto start = std::chrono::steady_clock::now();
  esp::fit(network, SoftmaxCrossEntropy({.label_smoothing = 0.1}), augmented,
           {.optimizer = optimizer, .epochs = epochs, .batch_size = batch_size, .seed = seed});
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  const esp::Tensor predicted = esp::argmax(esp::predict(network, test[0]), 1).value();
  const esp::ConfusionMatrix confusion(predicted, test[1], 10);
  std::cout << confusion << "accuracy " << confusion.accuracy() << " of " << confusion.total()
            << " digits that were held out, after " << seconds.count() << " s\n";

  const auto file = std::filesystem::temp_directory_path() / "filters.png";
  draw(network.parameter("0.0.weight"), file);
  std::cout << "the first layer's kernels are drawn in " << file << "\n";
  return confusion.accuracy() >= 0.985 ? 0 : 1;
} catch (const esp::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
