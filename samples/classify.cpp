// Tells what is in an image, by a network of torchvision whose parameters are in a file:
//   classify image.png --model resnet50.safetensors [--labels names.txt]
// The model is written in Python by safetensors.torch.save_file(model.state_dict(), "resnet50.safetensors"),
// and its name says which network it is. `names.txt` has the name of a class in each line. Without arguments,
// an untrained network guesses what a digit is.
#include <espalier/espalier.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>
namespace esp = espalier;
namespace vision = espalier::nn::vision;
using std::filesystem::path;

const std::map<std::string, std::function<esp::nn::Sequential()>> kNetworks{
    {"alexnet", [] { return vision::alexnet(); }},   {"mobilenet_v2", [] { return vision::mobilenet_v2(); }},
    {"resnet18", [] { return vision::resnet18(); }}, {"resnet34", [] { return vision::resnet34(); }},
    {"resnet50", [] { return vision::resnet50(); }}, {"resnet101", [] { return vision::resnet101(); }},
    {"vgg16", [] { return vision::vgg16(); }},
};

/// The middle of the image, [1, 3, 224, 224], as the networks have seen those of ImageNet: the shorter side
/// has 256 pixels, and colours are in standard deviations from their mean.
esp::Variable prepared(const path& file) {
  using namespace esp::data::transforms;
  const Compose transforms{Resize(256), CenterCrop(224), ToFloat(),
                           Normalize({0.485f, 0.456f, 0.406f}, {0.229f, 0.224f, 0.225f})};
  return esp::unsqueeze(transforms(esp::data::read_image(file, {.channels = 3, .dtype = esp::uint8})), 0);
}

/// A digit in a file, for the run without arguments.
path draw_digit(const path& folder) {
  const esp::Tensor table = esp::data::read_csv("samples/data/digits.csv");
  esp::data::write_image(folder / "digit.png",
                         (esp::slice(table, 0, 0, 1)[{0, esp::range(0, 64)}] * 15.9).reshape({8, 8}).value());
  return folder / "digit.png";
}

/// Files by what stands before them: "--model", "--labels", or nothing.
std::map<std::string, path> files_of(int argc, char** argv) {
  std::map<std::string, path> given;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const bool is_option = word == "--model" || word == "--labels";
    const bool is_file = !word.starts_with("--");
    if ((!is_file && !is_option) || (is_option && i + 1 == argc) || given.contains(is_option ? word : ""))
      throw esp::Error("usage: classify image.png --model resnet50.safetensors [--labels names.txt]");
    given[is_option ? word : ""] = is_option ? argv[++i] : word;
  }
  return given;
}

/// The lines of a file.
std::vector<std::string> lines_of(const path& file) {
  std::ifstream in(file);
  if (!in) throw esp::FileError(file.string() + " cannot be read");
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

int main(int argc, char** argv) try {
  std::map<std::string, path> given = files_of(argc, argv);
  const path folder =
      std::filesystem::temp_directory_path() / ("espalier_classify_" + std::to_string(getpid()));
  if (given.size() < 2 || !given.contains("")) std::filesystem::create_directories(folder);
  if (!given.contains("")) given[""] = draw_digit(folder);
  if (!given.contains("--model")) {
    esp::nn::save(vision::resnet18(), given["--model"] = folder / "resnet18.safetensors");
    std::cout << "without --model the network is untrained\n";
  }
  const auto make = kNetworks.find(given["--model"].stem().string());
  if (make == kNetworks.end()) throw esp::Error("there is no network " + given["--model"].stem().string());
  std::vector<std::string> names;
  if (given.contains("--labels")) names = lines_of(given["--labels"]);
  esp::nn::Sequential network = make->second();
  esp::nn::load(network, given["--model"]);
  network.train(false);

  const esp::NoGrad no_grad;
  const esp::Variable image = prepared(given[""]);
  std::filesystem::remove_all(folder);
  const auto [probabilities, classes] = esp::topk(esp::softmax(network(image)), 5);
  for (int64_t i = 0; i < 5; ++i) {
    const auto number = static_cast<size_t>(classes.value().at<int64_t>({0, i}));
    std::cout << probabilities.value().at<float>({0, i}) << "  "
              << (number < names.size() ? names[number] : "class " + std::to_string(number)) << "\n";
  }
  const double sum = esp::sum(probabilities).item();
  return sum > 0 && sum < 1.001 ? 0 : 1;
} catch (const esp::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
