// Layers that pad, cut windows and move pixels, distances as objects, and neighbourhoods divided by their
// sizes.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/check_gradient.h"
#include "espalier/core/error.h"
#include "espalier/nn/container.h"
#include "espalier/nn/distance.h"
#include "espalier/nn/embedding.h"
#include "espalier/nn/padding.h"
#include "espalier/nn/windows.h"
#include "testing.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;

namespace {

esp::Variable image() { return esp::reshape(esp::arange(16, esp::float64), {1, 4, 2, 2}); }

}  // namespace

BOOST_AUTO_TEST_SUITE(rearranging_layers)

BOOST_AUTO_TEST_CASE(paddings) {
  const esp::Variable row = esp::reshape(esp::arange(3, esp::float64), {1, 1, 3});
  const auto padded = [&](const nn::Layer& layer) { return Array(layer(row).value()).values; };
  const std::vector<esp::Padding> ends{{2, 1}};
  BOOST_TEST(padded(nn::ZeroPad(ends)) == (std::vector<double>{0, 0, 0, 1, 2, 0}));
  BOOST_TEST(padded(nn::ConstantPad(ends, 7)) == (std::vector<double>{7, 7, 0, 1, 2, 7}));
  BOOST_TEST(padded(nn::ReflectionPad(ends)) == (std::vector<double>{2, 1, 0, 1, 2, 1}));
  BOOST_TEST(padded(nn::ReplicationPad(ends)) == (std::vector<double>{0, 0, 0, 1, 2, 2}));
  BOOST_TEST(padded(nn::CircularPad(ends)) == (std::vector<double>{1, 2, 0, 1, 2, 0}));
  BOOST_TEST(padded(nn::Pad({{-1, 0}})) == (std::vector<double>{1, 2}));
  BOOST_CHECK_EXCEPTION((void)nn::ReflectionPad({{3, 0}})(row), esp::ShapeError,
                        says({"pad", "rearranging_layers_test.cpp:"}));
}

BOOST_AUTO_TEST_CASE(windows_and_pixels) {
  const esp::Variable x = image();
  const nn::Sequential there_and_back{nn::PixelShuffle(2), nn::PixelUnshuffle(2)};
  BOOST_TEST(nn::PixelShuffle(2)(x).shape() == esp::Shape({1, 1, 4, 4}));
  BOOST_TEST(difference(there_and_back(x).value(), x.value()) == 0);
  BOOST_TEST(nn::Unfold({.kernel = {2, 2}})(x).shape() == esp::Shape({1, 16, 1}));
  BOOST_TEST(difference(nn::Fold({2, 2}, {.kernel = {2, 2}})(nn::Unfold({.kernel = {2, 2}})(x)).value(),
                        x.value()) == 0);
  BOOST_TEST(
      difference(esp::slice(nn::ChannelShuffle(2)(x), 1, 1, 2).value(), esp::slice(x, 1, 2, 3).value()) == 0);
}

BOOST_AUTO_TEST_CASE(images_in_other_sizes) {
  const esp::Variable x = image();
  const esp::InterpolateOptions all[] = {
      {.size = {5, 3}},
      {.scale = {1.5, 2}},
      {.scale = {2}, .mode = esp::Interpolation::linear},
      {.size = {3}, .mode = esp::Interpolation::cubic, .align_corners = true},
  };
  for (const esp::InterpolateOptions& options : all) {
    const nn::Sequential net{nn::Upsample(options)};
    BOOST_TEST(difference(net.clone()(x).value(), esp::interpolate(x, options).value()) == 0);
  }
  const esp::Variable first = esp::slice(esp::reshape(x, {1, 4, 4}), 2, 0, 1);
  BOOST_TEST(difference(nn::Upsample({.size = {1}})(x).value(), esp::unsqueeze(first, -1).value()) == 0);
  BOOST_CHECK_EXCEPTION((void)nn::Upsample({.size = {2}})(esp::ones({2, 3})), esp::ShapeError,
                        says({"[2, 3]", "in Upsample", here()}));
  BOOST_TEST(nn::Upsample({.size = {1}}).kind_name() == "Upsample");
}

BOOST_AUTO_TEST_CASE(settings_are_checked_where_a_layer_is_made) {
  BOOST_CHECK_EXCEPTION(nn::Upsample({.mode = esp::Interpolation::linear}), esp::Error,
                        says({"Upsample", "either", here()}));
  BOOST_CHECK_EXCEPTION(nn::Upsample({.size = {8}, .scale = {2}}), esp::Error,
                        says({"Upsample", "either", here()}));
  BOOST_CHECK_EXCEPTION(nn::Upsample({.size = {8, 0}}), esp::Error, says({"Upsample", "size is 0", here()}));
  for (const double scale : {-2.0, 0.0, std::nan(""), 1.0 / 0.0})
    BOOST_CHECK_EXCEPTION(nn::Upsample({.scale = {scale}}), esp::Error,
                          says({"Upsample", "scale is", here()}));
  BOOST_CHECK_EXCEPTION(nn::PixelShuffle(0), esp::Error, says({"PixelShuffle", "factor is 0", here()}));
  BOOST_CHECK_EXCEPTION(nn::PixelUnshuffle(-1), esp::Error, says({"PixelUnshuffle", "-1", here()}));
  BOOST_CHECK_EXCEPTION(nn::ChannelShuffle(0), esp::Error, says({"ChannelShuffle", "groups is 0", here()}));
}

BOOST_AUTO_TEST_CASE(neighbouring_channels) {
  const esp::Variable x = esp::variable(numbers({2, 5, 3}));
  const Array in(x.value());
  const Array expected({2, 5, 3}, [&](const Index& i) {
    double squares = 0;
    for (int64_t c = i[1] - 1; c <= i[1] + 1; ++c)
      if (c >= 0 && c < 5) squares += in({i[0], c, i[2]}) * in({i[0], c, i[2]});
    return in(i) / std::pow(2 + 0.5 / 3 * squares, 0.75);
  });
  const esp::LocalResponseOptions options{.size = 3, .alpha = 0.5, .beta = 0.75, .k = 2};
  BOOST_TEST(difference(expected, nn::LocalResponseNorm(options)(x).value()) < 1e-14);
  const auto f = [&](const Variables& v) { return esp::local_response_norm(v[0], options); };
  BOOST_TEST(esp::check_gradient(f, {numbers({1, 4, 2})}, {.order = 2}).passed);
  BOOST_CHECK_EXCEPTION(esp::local_response_norm(esp::ones({3})), esp::ShapeError, says({"[3]", "channels"}));
  BOOST_CHECK_EXCEPTION(esp::local_response_norm(x, {.size = 0}), esp::Error, says({"0 channels"}));
}

BOOST_AUTO_TEST_CASE(numbers_of_16_bits_are_widened) {
  const esp::Tensor x = esp::full({1, 3}, 1000, esp::float16);
  const auto first = [](const esp::Variable& y) {
    return esp::cast(y, esp::float64).value().at<double>({0, 0});
  };
  const double divided = first(esp::local_response_norm(x, {.size = 1, .alpha = 1e-6}));
  BOOST_TEST(std::abs(divided - 1000 / std::pow(2, 0.75)) < 0.5);
  BOOST_TEST(std::abs(first(esp::normalize(esp::full({1, 10000}, 1000, esp::float16))) - 0.01) < 1e-5);
  BOOST_TEST(first(esp::normalize(esp::zeros({1, 3}, esp::float16))) == 0);
  const nn::Embedding table(2, 3, {.dtype = esp::float16, .max_norm = 1.0});
  esp::set_value(table.parameter("weight"), esp::full({2, 3}, 1000, esp::float16));
  BOOST_TEST(std::abs(first(table(esp::tensor({1}, esp::int64))) - 1 / std::sqrt(3.0)) < 1e-3);
}

BOOST_AUTO_TEST_CASE(lengths_and_distances) {
  const esp::Variable x = esp::variable(numbers({3, 4}));
  const Array unit(esp::normalize(x).value());
  for (int64_t i = 0; i < 3; ++i) {
    double squares = 0;
    for (int64_t j = 0; j < 4; ++j) squares += unit({i, j}) * unit({i, j});
    BOOST_TEST(std::abs(squares - 1) < 1e-14);
  }
  BOOST_CHECK_EXCEPTION(esp::normalize(x, {.p = -1}), esp::Error, says({"normalize", "-1"}));
  BOOST_TEST(Array(esp::normalize(esp::zeros({1, 2})).value()).values == (std::vector<double>{0, 0}));
  const esp::Variable y = numbers({3, 4}, 1, 2);
  BOOST_TEST(difference(nn::CosineSimilarity()(x, y).value(), esp::cosine_similarity(x, y, 1).value()) == 0);
  BOOST_TEST(difference(nn::PairwiseDistance({.p = 1})(x, y).value(),
                        esp::pairwise_distance(x, y, {.p = 1}).value()) == 0);
}

BOOST_AUTO_TEST_SUITE_END()
