// Writes plan files that later versions must read, and what they compute: figure_plans <folder>.
// plan_figures_test.cpp loads them. A file that was published stays as it is; a new one gets another name.
#include <espalier/core/files/safetensors.h>
#include <espalier/espalier.h>

#include <filesystem>
#include <iostream>
namespace esp = espalier;
namespace nn = espalier::nn;

namespace {

esp::Tensor numbers(const esp::Shape& shape) { return (esp::rand(shape) * 2 - 1).value(); }

/// Trains for some steps.
esp::Executor trainer(const esp::Variable& loss, const esp::NamedTensors& feeds, int steps) {
  const esp::Executor executor = loss.get_executor({.optimizer = esp::optim::Adam({.lr = 0.01})});
  for (int step = 0; step < steps; ++step) (void)executor.run(esp::Feeds(feeds.begin(), feeds.end()));
  return executor;
}

/// An inference plan, with a row of numbers and what comes out.
void write_inference(const std::string& name, const std::filesystem::path& folder, const esp::Variable& y,
                     const esp::Tensor& x, esp::NamedTensors& figures) {
  const esp::Executor executor = y.get_executor({.mode = esp::Mode::inference});
  executor.save(folder / (name + ".plan"));
  figures.emplace_back(name + ".x", x);
  figures.emplace_back(name + ".y", executor.run({{"x", x}}));
}

void write_convolution(const std::filesystem::path& folder, esp::NamedTensors& figures) {
  const nn::Sequential net{nn::Conv2d(3, {.kernel = 3, .padding = 1}),
                           nn::BatchNorm(),
                           nn::Relu(),
                           nn::MaxPool2d({.kernel = 2}),
                           nn::Conv2d(4, {.kernel = 3, .stride = 2, .padding = 1}),
                           nn::Tanh(),
                           nn::Flatten(),
                           nn::Dropout(0.3),
                           nn::Dense(3)};
  const esp::Variable x = esp::placeholder("x", {2, 1, 6, 6}), y = net(x);
  const esp::Tensor value = numbers({2, 1, 6, 6});
  (void)trainer(esp::mean(esp::square(y)), {{"x", value}}, 3);  // running statistics
  write_inference("convolution", folder, y, value, figures);
}

void write_transformer(const std::filesystem::path& folder, esp::NamedTensors& figures) {
  const nn::TransformerEncoder net(1, 8, 2, {.feedforward = 12, .norm_first = true});
  const esp::Variable x = esp::placeholder("x", {2, 5, 8});
  write_inference("transformer", folder, net(x, {.causal = true}), numbers({2, 5, 8}), figures);
}

/// With the state of Adam after two steps, and the losses of the next three.
void write_lstm(const std::filesystem::path& folder, esp::NamedTensors& figures) {
  const nn::Lstm lstm(3, 4);
  const nn::Dense out(2);
  const esp::Variable x = esp::placeholder("x", {5, 2, 3}), y = esp::placeholder("y", {5, 2, 2});
  const esp::NamedTensors feeds{{"x", numbers({5, 2, 3})}, {"y", numbers({5, 2, 2})}};
  const esp::Executor executor = trainer(esp::mean(esp::square(out(lstm(x).outputs) - y)), feeds, 2);
  executor.save(folder / "lstm_training.plan");
  for (const auto& [name, value] : feeds) figures.emplace_back("lstm_training." + name, value);
  esp::Tensor losses({3});
  for (float& loss : losses.span<float>())
    loss = static_cast<float>(executor.run(esp::Feeds(feeds.begin(), feeds.end())).item());
  figures.emplace_back("lstm_training.losses", losses);
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc != 2) throw esp::Error("usage: figure_plans <folder>");
  esp::seed(1);
  esp::NamedTensors figures;
  write_convolution(argv[1], figures);
  write_lstm(argv[1], figures);
  write_transformer(argv[1], figures);
  esp::write_safetensors(std::filesystem::path(argv[1]) / "plans.safetensors", figures);
} catch (const std::exception& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
