// Layers of windows, boxes and positions: each computes the function whose name it has.
#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/nn/convolution.h"
#include "espalier/nn/pooling.h"
#include "espalier/nn/positions.h"
#include "espalier/nn/vision_pooling.h"
#include "espalier/ops/functions/convolution.h"
#include "espalier/ops/functions/fractional_pooling.h"
#include "espalier/ops/functions/global_pooling.h"
#include "espalier/ops/functions/lp_pooling.h"
#include "espalier/ops/functions/regions.h"
#include "espalier/ops/functions/unpooling.h"
#include "espalier/ops/ops.h"
#include "testing.h"

namespace esp = espalier;
namespace nn = espalier::nn;
using namespace espalier::testing;
using esp::Variable;

namespace {

const Variable line = numbers({2, 3, 6}), plane = numbers({2, 3, 6, 5}), space = numbers({2, 3, 4, 5, 4});

bool same(const Variable& a, const Variable& b) { return difference(a.value(), b.value()) == 0; }

}  // namespace

BOOST_AUTO_TEST_SUITE(window_layers)

BOOST_AUTO_TEST_CASE(pooling_of_any_number_of_axes) {
  BOOST_TEST(same(nn::MaxPool3d({.kernel = 2, .padding = 1})(space),
                  esp::max_pool(space, {.kernel = 2, .padding = 1})));
  BOOST_TEST(same(nn::AdaptiveMaxPool1d(4)(line), esp::adaptive_max_pool(line, 4)));
  BOOST_TEST(same(nn::AdaptiveMaxPool2d({2, 3})(plane), esp::adaptive_max_pool(plane, {2, 3})));
  BOOST_TEST(same(nn::AdaptiveMaxPool3d({2, 3, 1})(space), esp::adaptive_max_pool(space, {2, 3, 1})));
  BOOST_TEST(same(nn::AdaptiveAvgPool1d(4)(line), esp::adaptive_avg_pool(line, 4)));
  BOOST_TEST(same(nn::AdaptiveAvgPool3d({2, 3, 1})(space), esp::adaptive_avg_pool(space, {2, 3, 1})));
  BOOST_TEST(same(nn::LPPool3d({.kernel = 2, .p = 3})(space), esp::lp_pool(space, {.kernel = 2, .p = 3})));
  BOOST_TEST(same(nn::GlobalMaxPool()(plane), esp::global_max_pool(plane)));
  BOOST_TEST(same(nn::GlobalAvgPool()(plane), esp::global_avg_pool(plane)));
}

BOOST_AUTO_TEST_CASE(an_input_of_other_axes_is_refused_by_name) {
  const auto refuses = [](const nn::Layer& layer, const char* name) {
    BOOST_CHECK_EXCEPTION((void)layer(numbers({2, 3})), esp::ShapeError, says({name, "[2, 3]", here()}));
  };
  refuses(nn::MaxPool3d({.kernel = 2}), "MaxPool3d");
  refuses(nn::AdaptiveMaxPool1d(2), "AdaptiveMaxPool1d");
  refuses(nn::AdaptiveMaxPool2d(2), "AdaptiveMaxPool2d");
  refuses(nn::AdaptiveMaxPool3d(2), "AdaptiveMaxPool3d");
  refuses(nn::AdaptiveAvgPool1d(2), "AdaptiveAvgPool1d");
  refuses(nn::AdaptiveAvgPool3d(2), "AdaptiveAvgPool3d");
  refuses(nn::LPPool3d({.kernel = 2}), "LPPool3d");
  refuses(nn::FractionalMaxPool3d({.kernel = 2, .parts = 2}), "FractionalMaxPool3d");
}

BOOST_AUTO_TEST_CASE(fractional_windows_are_drawn_by_the_layers) {
  const auto drawn = [](const auto& make) {
    esp::seed(5);
    return Variable(make().value());
  };
  const esp::FractionalPoolOptions options{.kernel = 2, .parts = 2};
  BOOST_TEST(same(drawn([&] { return nn::FractionalMaxPool2d(options)(plane); }),
                  drawn([&] { return esp::fractional_max_pool(plane, options); })));
  BOOST_TEST(same(drawn([&] { return nn::FractionalMaxPool3d(options)(space); }),
                  drawn([&] { return esp::fractional_max_pool(space, options); })));
}

BOOST_AUTO_TEST_CASE(elements_go_back_to_their_places) {
  const auto check = [](const auto& layer, const Variable& x) {
    const auto [largest, places] = esp::max_pool_with_indices(x, {.kernel = 2});
    BOOST_TEST(same(layer(largest, places), esp::max_unpool(largest, places, {.kernel = 2})));
  };
  check(nn::MaxUnpool1d({.kernel = 2}), line);
  check(nn::MaxUnpool2d({.kernel = 2}), numbers({2, 3, 6, 4}));
  check(nn::MaxUnpool3d({.kernel = 2}), numbers({2, 3, 4, 2, 6}));
}

BOOST_AUTO_TEST_CASE(boxes_of_images) {
  const Variable boxes = esp::tensor({{0.0, 0.0, 0.0, 4.0, 5.0}, {1.0, 1.0, 2.0, 3.0, 4.0}}, esp::float64);
  BOOST_TEST(same(nn::RoiAlign({.size = {2, 3}, .scale = 0.5, .aligned = true})(plane, boxes),
                  esp::roi_align(plane, boxes, {.size = {2, 3}, .scale = 0.5, .aligned = true})));
  BOOST_TEST(same(nn::RoiPool({.size = {3, 2}, .scale = 0.5})(plane, boxes),
                  esp::roi_pool(plane, boxes, {.size = {3, 2}, .scale = 0.5})));
}

BOOST_AUTO_TEST_CASE(hooks_of_layers_of_two_inputs_see_the_first) {
  const Variable boxes = esp::tensor({{0.0, 0.0, 0.0, 4.0, 5.0}}, esp::float64);
  nn::RoiPool layer({.size = 1});
  const Variable plain = layer(plane, boxes);
  layer.register_forward_hook(
      [](const Variable& x, const Variable& y) { return y * 2.0 + esp::mean(x) * 0.0; });
  BOOST_TEST(difference(layer(plane, boxes).value(), (plain * 2.0).value()) < 1e-15);
}

BOOST_AUTO_TEST_CASE(convolutions_are_created_for_channels_that_are_told) {
  const nn::Conv1d conv(4, 6, {.kernel = 3, .groups = 2, .dtype = esp::float64});
  BOOST_TEST(conv.parameters()[0].second.shape() == esp::Shape({6, 2, 3}));
  const nn::ConvTranspose3d back(4, 6, {.kernel = 2, .groups = 2, .dtype = esp::float64});
  const auto parameters = back.parameters();
  BOOST_TEST(parameters[0].second.shape() == esp::Shape({4, 3, 2, 2, 2}));
  const Variable x = numbers({1, 4, 2, 3, 2});
  BOOST_TEST(
      same(back(x), esp::conv_transpose(x, parameters[0].second, parameters[1].second, {.groups = 2})));
}

BOOST_AUTO_TEST_CASE(rotary_positions_as_a_layer) {
  const Variable x = numbers({2, 5, 6});
  const nn::RotaryOptions options{.base = 100, .offset = 3, .interleaved = true};
  BOOST_TEST(same(nn::RotaryPositions(options)(x), nn::rotary(x, options)));
  BOOST_TEST(same(nn::RotaryPositions()(x), nn::rotary(x)));
  BOOST_TEST(!same(nn::RotaryPositions()(x), nn::RotaryPositions(options)(x)));
  BOOST_CHECK_EXCEPTION(nn::RotaryPositions({.base = 0}), esp::Error,
                        says({"RotaryPositions", "the base is 0", here()}));
  BOOST_CHECK_EXCEPTION((void)nn::rotary(numbers({4})), esp::ShapeError, says({"rotary", "[4]", here()}));
}

BOOST_AUTO_TEST_SUITE_END()
