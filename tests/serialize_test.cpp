// Parameters of modules in files, and parts of the format that matter to other programs.
#include <boost/test/unit_test.hpp>

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "espalier/core/error.h"
#include "espalier/core/files/file.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "espalier/nn/dense.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/layer_norm.h"
#include "espalier/nn/serialize.h"
#include "file_errors.h"
#include "testing.h"

namespace esp = espalier;
using namespace espalier::testing;

BOOST_AUTO_TEST_SUITE(serialize)

BOOST_AUTO_TEST_CASE(tensors_lie_aligned_in_a_mapped_file) {
  const TemporaryFolder folder;
  const esp::NamedTensors tensors{
      {"flags", esp::full({3}, true, esp::boolean)},      {"halves", esp::ones({3}, esp::float16)},
      {"doubles", esp::ones({3}, esp::float64)},          {"floats", esp::ones({3})},
      {"more flags", esp::full({2}, true, esp::boolean)}, {"longs", esp::full({1}, 1, esp::int64)}};
  esp::write_safetensors(folder / "f", tensors, {{"note", "of a length that is odd"}});
  const std::string bytes = esp::read_file(folder / "f");
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof length);
  BOOST_TEST(length % 8 == 0u);
  const auto header = nlohmann::json::parse(bytes.substr(8, length));
  std::map<int64_t, std::string> order;
  for (const auto& [name, tensor] : tensors) {
    const int64_t begin = header.at(name).at("data_offsets").at(0).get<int64_t>();
    BOOST_TEST(begin % static_cast<int64_t>(esp::size_of(tensor.dtype())) == 0, name);
    order.emplace(begin, name);
  }
  // Entries of equal size keep their order.
  std::vector<std::string> names;
  for (const auto& [begin, name] : order) names.push_back(name);
  BOOST_TEST(names ==
             (std::vector<std::string>{"doubles", "longs", "floats", "halves", "flags", "more flags"}));
}

BOOST_AUTO_TEST_CASE(a_header_is_not_longer_than_the_format_allows) {
  const TemporaryFolder folder;
  const uint64_t length = 100'000'001;
  folder.write("f", std::string(reinterpret_cast<const char*>(&length), sizeof length));
  std::filesystem::resize_file(folder / "f", 8 + length);  // a sparse file
  BOOST_TEST(has(file_error([&] { esp::read_safetensors(folder / "f"); }), "more than the format allows"));
}

BOOST_AUTO_TEST_CASE(unknown_sizes_and_types_of_a_layer_agree) {
  const TemporaryFolder folder;
  const std::string nothing = "it threw nothing";
  const auto message = [&](const esp::Tensor& weight, const esp::Tensor& bias) {
    esp::write_safetensors(folder / "f", {{"weight", weight}, {"bias", bias}});
    esp::nn::LayerNorm layer;
    const std::string what = file_error([&] { esp::nn::load(layer, folder / "f"); });
    BOOST_TEST(layer.parameters().empty() == (what != nothing));
    return what;
  };
  const std::string sizes = message(esp::ones({3}), esp::ones({4}));
  BOOST_TEST(has(sizes, "the parameter bias has shape"), sizes);
  BOOST_TEST(has(sizes, "[4] in the file"), sizes);
  const std::string types = message(esp::ones({3}), esp::ones({3}, esp::float64));
  BOOST_TEST(has(types, "bias of shape"), types);
  BOOST_TEST(has(types, "float64 in the file"), types);
  BOOST_TEST(has(message(esp::ones({3}, esp::int32), esp::ones({3}, esp::int32)), "int32 in the file"));
  BOOST_TEST(message(esp::ones({3}, esp::float64), esp::ones({3}, esp::float64)) == nothing);
  // Open sizes and types of different layers are independent, and an embedding has its own dtype.
  esp::nn::Sequential two{esp::nn::LayerNorm(), esp::nn::LayerNorm()};
  esp::write_safetensors(folder / "f", {{"0.weight", esp::ones({3})},
                                        {"0.bias", esp::ones({3})},
                                        {"1.weight", esp::ones({4}, esp::float64)},
                                        {"1.bias", esp::ones({4}, esp::float64)}});
  esp::nn::load(two, folder / "f");
  BOOST_TEST(two.parameters().size() == 4u);
  BOOST_TEST((two.parameter("0.bias").dtype() == esp::float32));
  BOOST_TEST((two.parameter("1.bias").dtype() == esp::float64));
  esp::write_safetensors(folder / "f", {{"weight", esp::ones({5, 2}, esp::float64)}});
  BOOST_TEST(has(file_error([&] { esp::nn::load(esp::nn::Embedding(5, 2), folder / "f"); }),
                 "is float32, and float64 in the file"));
}

BOOST_AUTO_TEST_CASE(a_layer_under_two_names_is_loaded_once) {
  const TemporaryFolder folder;
  const auto make = [] {
    const esp::nn::Dense twice(3);
    return esp::nn::Sequential{twice, twice};
  };
  const esp::nn::Sequential first = make(), called = make(), fresh = make();
  for (const esp::nn::Sequential& model : {first, called}) model(esp::ones({1, 3}));
  esp::nn::save(first, folder / "f");
  BOOST_TEST(esp::read_safetensors(folder / "f").size() == 2u);
  for (const esp::nn::Sequential& model : {called, fresh}) {
    esp::nn::load(model, folder / "f");
    BOOST_TEST(difference(model(esp::ones({2, 3})).value(), first(esp::ones({2, 3})).value()) == 0);
  }
}

BOOST_AUTO_TEST_CASE(parts_of_a_file_are_loaded) {
  const TemporaryFolder folder;
  const auto make = [] { return esp::nn::Sequential{esp::nn::Dense(4), esp::nn::Dense(2)}; };
  esp::nn::Sequential whole{make(), esp::nn::Dense(1)};
  whole(esp::ones({1, 3}));
  esp::nn::save(whole, folder / "f");
  using Names = std::vector<std::string>;
  const auto per_element = boost::test_tools::per_element();

  // A part of the file, whole.
  const esp::nn::Sequential body = make();
  const esp::nn::LoadReport exact = esp::nn::load(body, folder / "f", {.prefix = "0."});
  BOOST_TEST((exact.missing.empty() && exact.unexpected.empty()));
  BOOST_TEST(difference(body.parameter("1.weight").value(), whole.parameter("0.1.weight").value()) == 0);
  BOOST_TEST(has(file_error([&] { esp::nn::load(make(), folder / "f", {.prefix = "1."}); }), "0.weight"));

  // What both have.
  esp::nn::Sequential other{make(), esp::nn::Dense(3, 5), esp::nn::Dense(7, 2)};
  const esp::Tensor kept = other.parameter("2.weight").value().clone();
  // Shapes must fit all the same, and then nothing has changed.
  const std::string shapes = file_error([&] { esp::nn::load(other, folder / "f", {.strict = false}); });
  BOOST_TEST((has(shapes, "1.weight") && has(shapes, "[5, 3]") && has(shapes, "[1, 2]")), shapes);
  BOOST_TEST(other.parameters().size() == 4u);
  esp::nn::Sequential fits{make(), esp::nn::Relu(), esp::nn::Dense(7, 2)};
  BOOST_TEST(has(file_error([&] { esp::nn::load(fits, folder / "f"); }), "2.weight, 2.bias"));
  const esp::nn::LoadReport report = esp::nn::load(fits, folder / "f", {.strict = false});
  BOOST_TEST(report.missing == Names({"2.weight", "2.bias"}), per_element);
  BOOST_TEST(report.unexpected == Names({"1.bias", "1.weight"}), per_element);
  BOOST_TEST(difference(fits.parameter("0.0.bias").value(), whole.parameter("0.0.bias").value()) == 0);
  const esp::nn::LoadReport nothing =
      esp::nn::load(make(), folder / "f", {.strict = false, .prefix = "backbone."});
  BOOST_TEST(nothing.missing.size() == 4u);
  BOOST_TEST(nothing.missing[0] == "backbone.0.weight");
  BOOST_TEST(nothing.unexpected.empty());

  // A layer of which only one parameter is in the file gets the other at its first call.
  esp::write_safetensors(folder / "f", {{"weight", esp::ones({4, 3})}});
  const esp::nn::Dense half(4);
  BOOST_TEST(esp::nn::load(half, folder / "f", {.strict = false}).missing == Names({"bias"}), per_element);
  BOOST_TEST(half(esp::ones({1, 3})).value().at<float>({0, 0}) == 3);
}

BOOST_AUTO_TEST_SUITE_END()
