// A network that reads digits is taught another question by 20 examples: does the digit have a closed loop?
#include <espalier/espalier.h>

#include <filesystem>
#include <iostream>
namespace esp = espalier;
using namespace espalier::nn;

Sequential make_body() {
  return Sequential{Conv2d(1, 16, {.kernel = 3, .padding = 1}),
                    Relu(),
                    MaxPool2d({.kernel = 2}),
                    Conv2d(16, 32, {.kernel = 3, .padding = 1}),
                    Relu(),
                    Flatten(),
                    Dense(32 * 4 * 4, 64),
                    Relu()};
}

double accuracy(const Sequential& net, const esp::Tensor& pixels, const esp::Tensor& labels) {
  return esp::accuracy(esp::predict(net, pixels), labels).item();
}

int main() {
  esp::seed(1);
  const esp::Tensor table = esp::data::read_csv("samples/data/digits.csv");
  const esp::Tensor pixels = (esp::slice(table, 1, 0, 64).reshape({-1, 1, 8, 8}) / 16).value();
  const esp::Tensor digits = esp::slice(table, 1, 64, 65).cast(esp::int64).reshape({-1}).value();
  // 0, 6, 8 and 9 have a closed loop: class 1.
  const esp::Tensor loops = esp::gather(esp::tensor({1, 0, 0, 0, 0, 0, 1, 0, 1, 1}), digits).value();
  const auto [train, test] = esp::data::split({pixels, digits, loops}, 0.7);
  const esp::Tensor few = train[0].slice(0, 0, 20), few_loops = train[2].slice(0, 0, 20);
  const SoftmaxCrossEntropy loss;

  // 1. A network is trained to read digits, and saved.
  const Sequential reader{make_body(), Dense(64, 10)};
  esp::fit(reader, loss, {train[0], train[1]}, {.epochs = 20, .progress = false});
  std::cout << "reading digits: accuracy " << accuracy(reader, test[0], test[1]) << "\n";
  const auto file = std::filesystem::temp_directory_path() / "reader_of_digits.safetensors";
  save(reader, file);

  // 2. The other question from its 20 examples alone.
  const esp::FitOptions on_few{
      .optimizer = esp::optim::Adam({.lr = 3e-3}), .epochs = 150, .batch_size = 20, .progress = false};
  const Sequential scratch{make_body(), Dense(64, 2)};
  esp::fit(scratch, loss, {few, few_loops}, on_few);
  const double from_scratch = accuracy(scratch, test[0], test[2]);
  std::cout << "closed loops, from 20 examples: accuracy " << from_scratch << " from scratch\n";

  // 3. The same with the body of the reader, which stays as it is while a new head is trained. The file has a
  // head, too: the prefix selects the body, the reader's part "0".
  Sequential body = make_body();
  load(body, file, {.prefix = "0."});
  std::filesystem::remove(file);
  const Dense head(64, 2);
  const Sequential transferred{body, head};
  body.trainable(false);
  esp::fit(transferred, loss, {few, few_loops}, on_few);
  std::cout << "… " << accuracy(transferred, test[0], test[2]) << " with the body of the reader, frozen\n";

  // 4. Then all of it is tuned, the body at a tenth of the head's rate.
  body.trainable(true);
  const esp::optim::Groups groups({{body.parameters(), esp::optim::Adam({.lr = 1e-4})},
                                   {head.parameters(), esp::optim::Adam({.lr = 1e-3})}});
  esp::fit(transferred, loss, {few, few_loops},
           {.optimizer = groups, .epochs = 20, .batch_size = 20, .progress = false});
  const double tuned = accuracy(transferred, test[0], test[2]);
  std::cout << "… " << tuned << " after tuning all of it\n";
  return tuned > from_scratch + 0.04 ? 0 : 1;
}
