// Samples that take arguments: samples/classify.cpp with a model and labels from files.
#include <boost/test/unit_test.hpp>

#include <algorithm>

#include "espalier/core/random.h"
#include "espalier/data/image.h"
#include "espalier/nn/serialize.h"
#include "espalier/nn/vision/models.h"
#include "espalier/ops/ops.h"
#include "program_runs.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

namespace {

/// A network that takes every image for one of class 417, the classes' names, and an image.
void write_files(const TemporaryFolder& folder) {
  esp::seed(5);
  const esp::nn::Sequential network = esp::nn::vision::mobilenet_v2();
  esp::Tensor bias = esp::zeros({1000});
  bias.span<float>()[417] = 1000;
  esp::set_value(network.parameter("classifier.1.bias"), bias);
  esp::nn::save(network, folder / "mobilenet_v2.safetensors");
  std::string names;
  for (int i = 0; i < 1000; ++i) names += i == 417 ? "balloon\n" : "class " + std::to_string(i) + "\n";
  folder.write("names.txt", names);
  esp::data::write_image(folder / "image.png", (esp::rand({3, 30, 40}) * 255.0).value());
}

Outcome classify(const TemporaryFolder& folder, const std::string& arguments) {
  return run_program(folder, places::classify + (" " + arguments));
}

}  // namespace

BOOST_AUTO_TEST_SUITE(sample_programs)

BOOST_AUTO_TEST_CASE(classify_names_what_is_in_an_image) {
  if (std::string(places::classify).empty()) return;
  const TemporaryFolder folder;
  write_files(folder);
  const Outcome named = classify(folder, "image.png --model mobilenet_v2.safetensors --labels names.txt");
  BOOST_TEST(named.code == 0, named.error);
  BOOST_TEST(named.out.starts_with("1  balloon\n"), named.out);
  BOOST_TEST(std::count(named.out.begin(), named.out.end(), '\n') == 5);
  const Outcome numbered = classify(folder, "--model mobilenet_v2.safetensors image.png");
  BOOST_TEST(numbered.code == 0, numbered.error);
  BOOST_TEST(numbered.out.starts_with("1  class 417\n"), numbered.out);
}

BOOST_AUTO_TEST_CASE(classify_says_what_is_wrong) {
  if (std::string(places::classify).empty()) return;
  const TemporaryFolder folder;
  write_files(folder);
  folder.write("mobilenet_v3.safetensors", "");
  folder.write("resnet18.safetensors", "no model");
  const std::string model = "--model mobilenet_v2.safetensors ";
  const std::pair<std::string, std::string> mistakes[] = {
      {"image.png --model", "usage: classify"},
      {"image.png --network resnet18.safetensors", "usage: classify"},
      {"image.png image.png " + model, "usage: classify"},
      {"image.png --model mobilenet_v3.safetensors", "there is no network mobilenet_v3"},
      {"image.png --model resnet18.safetensors", "resnet18.safetensors"},
      {"image.png --model vgg16.safetensors", "vgg16.safetensors"},
      {"missing.png " + model, "missing.png"},
      {"names.txt " + model, "names.txt"},
      {"image.png --labels missing.txt " + model, "missing.txt cannot be read"},
  };
  for (const auto& [arguments, said] : mistakes) BOOST_TEST_CONTEXT(arguments) {
      const Outcome outcome = classify(folder, arguments);
      BOOST_TEST(outcome.code == 1);
      BOOST_TEST(outcome.out == "");
      BOOST_TEST(outcome.error.find(said) != std::string::npos, outcome.error);
      BOOST_TEST(std::count(outcome.error.begin(), outcome.error.end(), '\n') == 1, outcome.error);
    }
}

BOOST_AUTO_TEST_SUITE_END()
