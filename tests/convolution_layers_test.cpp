// Layers of convolutions.
#include "espalier/nn/convolution.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/nn/activation.h"
#include "espalier/nn/container.h"
#include "layer_training.h"

namespace esp = espalier;
using namespace espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

struct LayerRow {
  std::string name;
  Layer layer;
  esp::Shape input, weight, output;
  std::function<Variable(const Variable&, const Variable&, const Variable&)> function;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(convolution_layers)

BOOST_AUTO_TEST_CASE(compute_the_functions_of_their_parameters) {
  const LayerRow table[] = {
      {"Conv1d",
       Conv1d(4, {.kernel = 2, .stride = 2}),
       {2, 3, 6},
       {4, 3, 2},
       {2, 4, 3},
       [](const Variable& x, const Variable& w, const Variable& b) {
         return esp::conv(x, w, b, {.stride = 2});
       }},
      {"Conv2d",
       Conv2d(4, {.kernel = {3, 2}, .padding = {1, 0}, .groups = 2}),
       {2, 6, 4, 5},
       {4, 3, 3, 2},
       {2, 4, 4, 4},
       [](const Variable& x, const Variable& w, const Variable& b) {
         return esp::conv(x, w, b, {.padding = {1, 0}, .groups = 2});
       }},
      {"Conv3d",
       Conv3d(2, {.kernel = 2, .dilation = {1, 2, 1}}),
       {1, 1, 3, 4, 2},
       {2, 1, 2, 2, 2},
       {1, 2, 2, 2, 1},
       [](const Variable& x, const Variable& w, const Variable& b) {
         return esp::conv(x, w, b, {.dilation = {1, 2, 1}});
       }},
      {"ConvTranspose1d",
       ConvTranspose1d(4, {.kernel = 3, .stride = 2, .padding = 1, .output_padding = 1}),
       {2, 3, 4},
       {3, 4, 3},
       {2, 4, 8},
       [](const Variable& x, const Variable& w, const Variable& b) {
         return esp::conv_transpose(x, w, b, {.stride = 2, .padding = 1, .output_padding = 1});
       }},
      {"ConvTranspose2d",
       ConvTranspose2d(4, {.kernel = 2, .groups = 2}),
       {2, 6, 3, 3},
       {6, 2, 2, 2},
       {2, 4, 4, 4},
       [](const Variable& x, const Variable& w, const Variable& b) {
         return esp::conv_transpose(x, w, b, {.groups = 2});
       }},
      {"ConvTranspose3d",
       ConvTranspose3d(1, {.kernel = {1, 2, 1}}),
       {1, 2, 2, 2, 2},
       {2, 1, 1, 2, 1},
       {1, 1, 2, 3, 2},
       [](const Variable& x, const Variable& w, const Variable& b) { return esp::conv_transpose(x, w, b); }},
  };
  for (const LayerRow& row : table) {
    const Variable x = numbers(row.input);
    const Variable y = row.layer(x);
    const auto parameters = row.layer.parameters();
    BOOST_TEST_REQUIRE(parameters.size() == 2u, row.name);
    Variable weight = parameters[0].second, bias = parameters[1].second;
    BOOST_TEST(weight.shape().str() == row.weight.str(), row.name);
    BOOST_TEST(y.shape().str() == row.output.str(), row.name);
    esp::set_value(bias, numbers(bias.shape(), -1, 1, 1));
    BOOST_TEST(difference(row.layer(x).value(), row.function(x, weight, bias).value()) == 0, row.name);
  }
}

BOOST_AUTO_TEST_CASE(with_known_channels_parameters_are_there_at_once) {
  const Conv2d layer(6, 4, {.kernel = 3, .groups = 2, .bias = false});
  BOOST_TEST_REQUIRE(layer.parameters().size() == 1u);
  BOOST_TEST(layer.parameters()[0].second.shape().str() == "[4, 3, 3, 3]");
  const ConvTranspose2d up(6, 4, {.kernel = 3, .groups = 2});
  BOOST_TEST_REQUIRE(up.parameters().size() == 2u);
  BOOST_TEST(up.parameters()[0].second.shape().str() == "[6, 2, 3, 3]");
  BOOST_TEST(up(esp::ones({1, 6, 4, 4})).shape().str() == "[1, 4, 6, 6]");
}

BOOST_AUTO_TEST_CASE(train_alike_eagerly_in_plans_and_on_replicas) {
  const std::function<Sequential()> make = [] {
    return Sequential(Conv2d(4, {.kernel = 3, .padding = 1}), Tanh(),
                      ConvTranspose2d(2, {.kernel = 2, .stride = 2}));
  };
  BOOST_TEST(training_differences(make, {2, 4, 3}) < 1e-12);
}

BOOST_AUTO_TEST_CASE(mistakes_name_the_layer) {
  const auto refuses = [](auto&& call, std::initializer_list<std::string> words) {
    BOOST_CHECK_EXCEPTION(call(), esp::Error, says(words));
  };
  const Variable x = numbers({1, 4, 5, 5});
  refuses([&] { Conv2d(0, {.kernel = 3}); }, {"Conv2d", "0 channels", here()});
  refuses([&] { Conv2d(3, {.kernel = 0}); }, {"Conv2d", "kernel of 0", here()});
  refuses([&] { Conv2d(3, {.kernel = {1, 2, 3}}); }, {"Conv2d", "3 kernel numbers for 2 axes", here()});
  const esp::ConvolutionPadding behind{esp::Padding{0, 0}, esp::Padding{0, -1}};
  refuses([&] { Conv2d(3, {.kernel = 1, .padding = behind}); }, {"Conv2d", "padding of -1", here()});
  refuses([&] { Conv2d(3, {.kernel = 1, .groups = 2}); }, {"Conv2d", "2 groups", here()});
  refuses([&] { Conv2d(5, 4, {.kernel = 1, .groups = 2}); }, {"Conv2d", "5 channels", here()});
  refuses([&] { ConvTranspose1d(5, 4, {.kernel = 1, .groups = 2}); }, {"ConvTranspose1d", "5 chan", here()});
  refuses([&] { Conv1d(3, {.kernel = 2})(x); }, {"Conv1d", "[1, 4, 5, 5]", here()});
  refuses([&] { Conv2d(3, {.kernel = 1, .groups = 3})(x); }, {"Conv2d", "3 groups", here()});
  refuses([&] { Conv2d(3, {.kernel = 6})(x); }, {"reaches over 6", here()});
  refuses([&] { Conv2d(3, {.kernel = 1, .dtype = esp::int64}); }, {"Conv2d", "int64", here()});
}

BOOST_AUTO_TEST_SUITE_END()
