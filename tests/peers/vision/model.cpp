// Loads a file of PyTorch into a model, and writes what the model computes: espalier_vision_peer MODEL
// FOLDER.
//
// FOLDER has state.safetensors (the model) and case.safetensors (`x`, and `factors` of the outputs' sum). It
// gets espalier.safetensors with, for "eval" and "train", `eval/y` and `eval/gradient/<parameter>`, and with
// `after/<buffer>` as it is behind the step of training. In inference, a plan computes `plan/y` as well.
#include <espalier/espalier.h>

#include <functional>
#include <iostream>
#include <map>
#include <string>
namespace esp = espalier;
namespace vision = espalier::nn::vision;

using Make = std::function<esp::nn::Layer(esp::DType)>;

const std::map<std::string, Make> kModels{
    {"lenet5", [](esp::DType t) { return vision::lenet5({.dtype = t}); }},
    {"alexnet", [](esp::DType t) { return vision::alexnet({.dropout = 0, .dtype = t}); }},
    {"vgg11", [](esp::DType t) { return vision::vgg11({.dropout = 0, .dtype = t}); }},
    {"vgg13", [](esp::DType t) { return vision::vgg13({.dropout = 0, .dtype = t}); }},
    {"vgg16", [](esp::DType t) { return vision::vgg16({.dropout = 0, .dtype = t}); }},
    {"vgg19", [](esp::DType t) { return vision::vgg19({.dropout = 0, .dtype = t}); }},
    {"vgg16_bn", [](esp::DType t) { return vision::vgg16({.batch_norm = true, .dropout = 0, .dtype = t}); }},
    {"resnet18", [](esp::DType t) { return vision::resnet18({.dtype = t}); }},
    {"resnet34", [](esp::DType t) { return vision::resnet34({.dtype = t}); }},
    {"resnet50", [](esp::DType t) { return vision::resnet50({.dtype = t}); }},
    {"resnet101", [](esp::DType t) { return vision::resnet101({.dtype = t}); }},
    {"resnet152", [](esp::DType t) { return vision::resnet152({.dtype = t}); }},
    {"mobilenet_v2", [](esp::DType t) { return vision::mobilenet_v2({.dropout = 0, .dtype = t}); }},
    {"unet", [](esp::DType t) { return vision::UNet({.dtype = t}); }},
};

int main(int argc, char** argv) try {
  if (argc != 3 || !kModels.contains(argv[1])) {
    std::cerr << "usage: espalier_vision_peer MODEL FOLDER\n";
    return 2;
  }
  const std::filesystem::path folder = argv[2];
  std::map<std::string, esp::Tensor> inputs;
  for (auto& [name, tensor] : esp::read_safetensors(folder / "case.safetensors"))
    inputs.emplace(name, tensor);
  const esp::Tensor x = inputs.at("x"), factors = inputs.at("factors");

  esp::nn::Layer net = kModels.at(argv[1])(x.dtype());
  esp::nn::load(net, folder / "state.safetensors");

  esp::NamedTensors results;
  for (const std::string mode : {"eval", "train"}) {
    net.train(mode == "train");
    const esp::Variable y = net(x), loss = esp::sum(y * factors);
    results.emplace_back(mode + "/y", y.value());
    loss.backward();
    for (const auto& [name, parameter] : net.parameters())
      results.emplace_back(mode + "/gradient/" + name, loss.gradient(parameter).value());
    if (mode == "train") break;
    const esp::Variable in =
        esp::placeholder("in", {-1, x.shape()[1], x.shape()[2], x.shape()[3]}, x.dtype());
    results.emplace_back("plan/y", net(in).get_executor().run({{"in", x}}));
  }
  for (const auto& [name, buffer] : net.buffers()) results.emplace_back("after/" + name, buffer.value());
  esp::write_safetensors(folder / "espalier.safetensors", results);
} catch (const esp::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
