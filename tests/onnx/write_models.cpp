// Writes networks as ONNX files, with inputs and outputs as arrays of NumPy: write_models folder [large]
// With the word, also those whose files have hundreds of megabytes.
#include <filesystem>
#include <iostream>

#include "espalier/onnx.h"
#include "op_trees.h"
#include "pointwise_trees.h"
#include "sample_models.h"

namespace esp = espalier;
namespace nn = espalier::nn;
namespace fs = std::filesystem;

namespace {

fs::path folder;

/// name.onnx, name.x.npy and name.y.npy: the result of an executor, and of the file once it is read again.
void write(const std::string& name, const esp::Variable& x, const esp::Variable& y, const esp::Tensor& value,
           const esp::onnx::NamedVariables& parameters) {
  esp::onnx::save(folder / (name + ".onnx"), {{"x", x}}, {{"y", y}}, {.parameters = parameters});
  const esp::Tensor own = y.get_executor({.mode = esp::Mode::inference}).run({{"x", value}});
  esp::data::write_npy(folder / (name + ".x.npy"), value);
  esp::data::write_npy(folder / (name + ".y.npy"), own);
  const esp::onnx::Model model = esp::onnx::load(folder / (name + ".onnx"));
  const esp::Tensor again = model.output().get_executor({.mode = esp::Mode::inference}).run({{"x", value}});
  esp::data::write_npy(folder / (name + ".again.npy"), again);
  std::cout << name << ": " << model.parameters().size() << " parameters\n";
}

template <class Net>
void write_images(const std::string& name, Net net, int64_t channels, int64_t size) {
  net.train(false);
  const esp::Variable x = esp::placeholder("x", {2, channels, size, size});
  const esp::Variable y = net(x);
  write(name, x, y, esp::randn({3, channels, size, size}), net.parameters());
}

struct Transformer : nn::Module {
  esp::Variable operator()(const esp::Variable& x) {  // [n, 6, 16]
    const auto heads = [](const esp::Variable& v) {
      return esp::permute(esp::reshape(v, {-1, 6, 2, 8}), {0, 2, 1, 3});
    };
    const esp::Variable q = heads(query(x)), k = heads(key(x)), v = heads(value(x));
    const esp::Variable weights = esp::softmax(esp::matmul(q, esp::transpose(k)) * (1 / std::sqrt(8.0)));
    const esp::Variable mixed =
        esp::reshape(esp::permute(esp::matmul(weights, v), {0, 2, 1, 3}), {-1, 6, 16});
    const esp::Variable y = first(x + out(mixed));
    return second(y + narrow(esp::gelu(wide(y))));
  }
  nn::Dense query = add("query", nn::Dense(16)), key = add("key", nn::Dense(16)),
            value = add("value", nn::Dense(16)), out = add("out", nn::Dense(16)),
            wide = add("wide", nn::Dense(64)), narrow = add("narrow", nn::Dense(16));
  nn::LayerNorm first = add("first", nn::LayerNorm()), second = add("second", nn::LayerNorm());
};

}  // namespace

int main(int count, char** arguments) {
  folder = arguments[1];
  const bool large = count > 2 && std::string(arguments[2]) == "large";
  esp::seed(1);
  {
    nn::Sequential net{nn::Dense(32), nn::Relu(),    nn::Dropout(0.5), nn::Dense(16), nn::LayerNorm(),
                       nn::Gelu(),    nn::RmsNorm(), nn::Dense(10),    nn::Softmax()};
    const esp::Variable x = esp::placeholder("x", {4, 20});
    const esp::Variable y = net(x);  // which makes the parameters
    write("mlp", x, y, esp::randn({7, 20}), net.parameters());
  }
  {
    Transformer net;
    const esp::Variable x = esp::placeholder("x", {4, 6, 16});
    const esp::Variable y = net(x);
    write("transformer", x, y, esp::randn({5, 6, 16}), net.parameters());
  }
  {
    nn::LSTMCell lstm(8);
    nn::GRUCell gru(8);
    const esp::Variable x = esp::placeholder("x", {4, 3, 5});
    nn::LSTMState state = lstm(esp::squeeze(esp::slice(x, 1, 0, 1), 1));
    for (int64_t t = 1; t < 3; ++t) state = lstm(esp::squeeze(esp::slice(x, 1, t, t + 1), 1), state);
    write("recurrent", x, gru(state.h), esp::randn({6, 3, 5}), {});
  }
  {
    nn::TransformerEncoder net(1, 16, 2, {.feedforward = 32});
    net.train(false);
    const esp::Variable x = esp::placeholder("x", {4, 6, 16});
    const esp::Variable y = net(x);
    write("transformer_encoder", x, y, esp::randn({5, 6, 16}), net.parameters());
  }
  for (const auto& [name, make] : esp::testing::op_trees()) {
    const esp::Variable x = esp::placeholder("x", {4, 6, 5});
    write("op_" + name, x, make(x), esp::randn({3, 6, 5}), {});
  }
  const esp::Variable pair = esp::placeholder("x", {4, 2});
  for (const auto& [name, y] : esp::testing::pointwise_trees(pair))
    write("pointwise " + name, pair, y, esp::testing::special_pairs(), {});
  for (const auto& model : esp::testing::sample_models())
    write("sample " + model.name, model.x, model.y, model.value, model.parameters);
  write_images("lenet5", nn::vision::lenet5(), 1, 28);
  write_images("resnet18", nn::vision::resnet18({.classes = 10}), 3, 64);
  write_images("mobilenet_v2", nn::vision::mobilenet_v2({.classes = 10}), 3, 64);
  write_images("resnet50", nn::vision::resnet50({.classes = 10}), 3, 64);
  write_images("unet", nn::vision::UNet(), 3, 32);
  if (!large) return 0;
  write_images("resnet34", nn::vision::resnet34(), 3, 64);
  write_images("resnet101", nn::vision::resnet101(), 3, 64);
  write_images("vgg16", nn::vision::vgg16(), 3, 32);
  write_images("alexnet", nn::vision::alexnet(), 3, 64);
  return 0;
}
