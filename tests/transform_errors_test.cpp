// Mistakes with transforms of images: settings are refused where a transform is constructed, images when it
// is used; both errors name the transform and the line of its construction.
#include <boost/test/unit_test.hpp>

#include <cmath>

#include "espalier/core/error.h"
#include "espalier/data/dataset.h"
#include "espalier/data/transforms.h"
#include "espalier/data/views.h"
#include "mistakes.h"
#include "testing.h"

using namespace espalier;
using namespace espalier::data::transforms;
using namespace espalier::testing;

namespace {

/// A transform and the line where it was constructed.
struct Made {
  std::string name;
  Transform transform;
  std::string line;
};

}  // namespace

BOOST_AUTO_TEST_SUITE(transform_errors)

BOOST_AUTO_TEST_CASE(sizes) {
  constexpr int64_t most = INT64_MAX, least = INT64_MIN;
  check<ShapeError>({
      {"Resize", [] { Resize(0); }, "0 x 0"},
      {"Resize",
       [] {
         Resize({4, -1});
       },
       "4 x -1"},
      {"Resize", [] { Resize{most}; }, "no size"},
      {"CenterCrop", [] { CenterCrop(0); }, "0 x 0"},
      {"CenterCrop",
       [] {
         CenterCrop({0, 3});
       },
       "0 x 3"},
      {"CenterCrop", [] { CenterCrop{least}; }, "no size"},
      {"RandomCrop", [] { RandomCrop(0); }, "0 x 0"},
      {"RandomCrop",
       [] {
         RandomCrop({3, -2});
       },
       "3 x -2"},
      {"RandomCrop", [] { RandomCrop{least}; }, "no size"},
      {"RandomCrop", [] { RandomCrop(3, {.padding = -1}); }, "a border of -1 pixels"},
      {"RandomCrop", [] { RandomCrop(3, {.padding = most}); }, "a border of"},
      {"RandomResizedCrop", [] { RandomResizedCrop(0); }, "0 x 0"},
      {"RandomResizedCrop",
       [] {
         RandomResizedCrop({most, 1});
       },
       "no size"},
  });
}

BOOST_AUTO_TEST_CASE(numbers_of_transforms) {
  constexpr float nan = NAN;
  check<DataError>({
      {"RandomHorizontalFlip", [] { RandomHorizontalFlip(1.5); }, "1.5"},
      {"RandomVerticalFlip", [] { RandomVerticalFlip(NAN); }, "nan"},
      {"RandomRotation", [] { RandomRotation(NAN); }, "nan degrees"},
      {"RandomRotation", [] { RandomRotation(-INFINITY); }, "-inf degrees"},
      {"RandomRotation", [] { RandomRotation(1e308); }, "1e+308 degrees"},
      {"RandomResizedCrop",
       [] {
         RandomResizedCrop(3, {.scale = {0.5, 1.5}});
       },
       "1.5"},
      {"RandomResizedCrop",
       [] {
         RandomResizedCrop(3, {.ratio = {0, 1}});
       },
       "ratio"},
      {"RandomErasing", [] { RandomErasing({.probability = -1}); }, "-1"},
      {"RandomErasing",
       [] {
         RandomErasing({.scale = {NAN, 0.5}});
       },
       "nan"},
      {"RandomErasing",
       [] {
         RandomErasing({.ratio = {2, 1}});
       },
       "from 2 to 1"},
      {"Cutout", [] { Cutout(0); }, "0 pixels"},
      {"Cutout", [] { Cutout{int64_t{1} << 40}; }, "1099511627776 pixels"},
      {"Grayscale", [] { Grayscale(2); }, "2 channels"},
      {"ColorJitter", [] { ColorJitter({.contrast = NAN}); }, "nan"},
      {"ColorJitter", [] { ColorJitter({.hue = 0.7}); }, "0.7"},
      {"Normalize",
       [] {
         Normalize({0, 0}, {1});
       },
       "2 means"},
      {"Normalize", [] { Normalize({}, {}); }, "0 means"},
      {"Normalize", [] { Normalize({nan}, {1}); }, "a mean is nan"},
      {"Normalize", [] { Normalize({0}, {0}); }, "a deviation is 0"},
  });
}

BOOST_AUTO_TEST_CASE(images_name_the_line_of_the_transform) {
  const std::vector<Made> all{
      {"Resize", Resize(3), here()},
      {"CenterCrop", CenterCrop(3), here()},
      {"RandomCrop", RandomCrop(3), here()},
      {"RandomResizedCrop", RandomResizedCrop(3), here()},
      {"RandomHorizontalFlip", RandomHorizontalFlip(1), here()},
      {"RandomVerticalFlip", RandomVerticalFlip(1), here()},
      {"RandomRotation", RandomRotation(5), here()},
      {"ColorJitter", ColorJitter({.brightness = 0.5}), here()},
      {"Grayscale", Grayscale(), here()},
      {"RandomErasing", RandomErasing({.probability = 1}), here()},
      {"Cutout", Cutout(2), here()},
      {"ToFloat", ToFloat(), here()},
      {"Normalize", Normalize({0}, {1}), here()},
  };
  const Tensor image = zeros({1, 5, 5}, int64);
  for (const Made& made : all) BOOST_TEST_CONTEXT(made.name) {
      Draws draws;
      BOOST_CHECK_EXCEPTION(made.transform(image, draws), TypeError,
                            says({made.name, "int64", made.line + ")"}));
      BOOST_CHECK_EXCEPTION((Compose{made.transform}(image)), TypeError,
                            says({made.name, "int64", made.line + ")"}));
    }
  // What a transform calls is named as well.
  BOOST_CHECK_EXCEPTION(Compose{RandomRotation(1)}(image), TypeError,
                        says({"rotate", "(in RandomRotation, ", here() + ")"}));
  // Images are checked whatever is drawn.
  BOOST_CHECK_EXCEPTION(Compose{RandomHorizontalFlip(0)}(image), TypeError, says({"int64", here()}));
  BOOST_CHECK_EXCEPTION(Compose{RandomVerticalFlip(0)}(image), TypeError, says({"int64", here()}));
  BOOST_CHECK_EXCEPTION(Normalize({0}, {1})(zeros({1, 5, 5}, float64)), TypeError,
                        says({"Normalize", "float64, not float32; cast it", here()}));
}

BOOST_AUTO_TEST_CASE(pixels_have_the_values_of_their_type) {
  const Tensor image = zeros({1, 5, 5}, uint8);
  for (const double value : {-3.0, 2.5, 300.0, double{NAN}}) {
    BOOST_CHECK_EXCEPTION(pad(image, 1, value), TypeError, says({"pad", "uint8", here()}));
    BOOST_CHECK_EXCEPTION(erase(image, 0, 0, 1, value), TypeError, says({"erase", "uint8", here()}));
    BOOST_CHECK_EXCEPTION(rotate(image, 5, {.fill = value}), TypeError, says({"rotate", "uint8", here()}));
    Draws draws;
    BOOST_CHECK_EXCEPTION(RandomCrop(5, {.padding = 1, .fill = value})(image, draws), TypeError,
                          says({"pad", "(in RandomCrop, ", here()}));
    BOOST_CHECK_EXCEPTION(Cutout(2, value)(image, draws), TypeError, says({"(in Cutout, ", here()}));
  }
  BOOST_TEST(pad(image, 1, 255).at<uint8_t>({0, 0, 0}) == 255);
  BOOST_TEST(pad(image.to(float32), 1, 2.5).at<float>({0, 0, 0}) == 2.5f);
}

BOOST_AUTO_TEST_CASE(a_chain_keeps_the_lines_of_its_transforms) {
  const Tensor image = zeros({1, 5, 5});
  const Transform own = [](const Tensor& x) { return crop(x, 9, 0, 1); };
  const std::string line_of_own = ":" + std::to_string(__LINE__ - 1) + ")";
  BOOST_CHECK_EXCEPTION(Compose{own}(image), ShapeError, says({"crop", line_of_own}));
  const Transform silent = [](const Tensor&) -> Tensor { throw DataError("no line"); };
  BOOST_CHECK_EXCEPTION(Compose{silent}(image), DataError, says({"no line (in Compose, ", here() + ")"}));
  const CenterCrop large(9);
  const std::string line_of_large = ":" + std::to_string(__LINE__ - 1) + ")";
  const auto images = std::make_shared<data::TensorDataset>(std::vector{zeros({2, 1, 5, 5})});
  BOOST_CHECK_EXCEPTION(data::map(images, Compose{Compose{large}}), ShapeError,
                        says({"CenterCrop", "9 x 9", line_of_large}));
  BOOST_CHECK_EXCEPTION((Compose{ToFloat()}(data::Row{}, {})), DataError, says({"no columns", here()}));
}

BOOST_AUTO_TEST_CASE(extreme_ratios_take_what_there_is) {
  Draws draws;
  const Tensor image = rand({1, 4, 5});
  const RandomResizedCrop wide(3, {.ratio = {1e300, 1e300}}), high(3, {.ratio = {1e-300, 1e-300}});
  BOOST_TEST(wide(image, draws).shape() == Shape({1, 3, 3}));
  BOOST_TEST(high(image, draws).shape() == Shape({1, 3, 3}));
}

BOOST_AUTO_TEST_SUITE_END()
