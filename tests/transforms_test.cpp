// Functions of images: torchvision's figures, and what they refuse.
#include "espalier/data/transforms.h"

#include <boost/test/unit_test.hpp>
#include <cmath>
#include <functional>
#include <map>

#include "espalier/core/error.h"
#include "figures/transforms.h"
#include "temporary_folder.h"

using namespace espalier;
using namespace espalier::data::transforms;
using testing::says;

namespace {

/// As image() in figures/transforms.py.
Tensor dyadic(const Shape& shape, bool bytes = false) {
  Tensor image(shape);
  int64_t i = 0;
  for (float& element : image.span<float>())
    element = static_cast<float>(37 * i++ % 53) / (bytes ? 0.25f : 64.0f);
  return bytes ? image.to(DType::uint8) : image;
}

using Numbers = std::vector<double>;
using Function = std::function<Tensor(const Tensor&, const Numbers&)>;

int64_t whole(double number) { return static_cast<int64_t>(number); }

const std::map<std::string, Function> functions = {
    {"resize",
     [](const Tensor& x, const Numbers& n) {
       return resize(x, {whole(n[0]), whole(n[1])}, {.antialias = n[2] != 0});
     }},
    {"Resize", [](const Tensor& x, const Numbers& n) { return Resize(whole(n[0]))(x); }},
    {"flip_horizontally", [](const Tensor& x, const Numbers&) { return flip_horizontally(x); }},
    {"flip_vertically", [](const Tensor& x, const Numbers&) { return flip_vertically(x); }},
    {"crop",
     [](const Tensor& x, const Numbers& n) {
       return crop(x, whole(n[0]), whole(n[1]), {whole(n[2]), whole(n[3])});
     }},
    {"CenterCrop",
     [](const Tensor& x, const Numbers& n) {
       return CenterCrop({whole(n[0]), whole(n[1])})(x);
     }},
    {"pad", [](const Tensor& x, const Numbers& n) { return pad(x, whole(n[0]), n[1]); }},
    {"rotate",
     [](const Tensor& x, const Numbers& n) {
       return rotate(x, n[0], {.sampling = n[1] == 0 ? Sampling::nearest : Sampling::bilinear, .fill = n[2]});
     }},
    {"adjust_brightness", [](const Tensor& x, const Numbers& n) { return adjust_brightness(x, n[0]); }},
    {"adjust_contrast", [](const Tensor& x, const Numbers& n) { return adjust_contrast(x, n[0]); }},
    {"adjust_saturation", [](const Tensor& x, const Numbers& n) { return adjust_saturation(x, n[0]); }},
    {"adjust_hue", [](const Tensor& x, const Numbers& n) { return adjust_hue(x, n[0]); }},
    {"grayscale", [](const Tensor& x, const Numbers& n) { return grayscale(x, whole(n[0])); }},
    {"ToFloat", [](const Tensor& x, const Numbers&) { return ToFloat()(x); }},
    {"erase",
     [](const Tensor& x, const Numbers& n) {
       return erase(x, whole(n[0]), whole(n[1]), {whole(n[2]), whole(n[3])}, n[4]);
     }},
    {"Normalize",
     [](const Tensor& x, const Numbers& n) {
       const auto f = [&](size_t i) { return static_cast<float>(n[i]); };
       return Normalize({f(0), f(1), f(2)}, {f(3), f(4), f(5)})(x);
     }},
};

}  // namespace

BOOST_AUTO_TEST_SUITE(transforms)

BOOST_AUTO_TEST_CASE(figures_of_torchvision) {
  for (size_t i = 0; i < testing::transform_figures.size(); ++i) {
    const testing::TransformFigures& figures = testing::transform_figures[i];
    BOOST_TEST_CONTEXT("figures " << i << " of " << figures.name) {
      const Tensor image = dyadic(figures.image, figures.bytes), before = image.clone();
      const Tensor result = functions.at(figures.name)(image, figures.numbers);
      BOOST_REQUIRE(result.shape() == Shape(figures.result));
      BOOST_TEST(std::ranges::equal(image.to(float32).span<float>(), before.to(float32).span<float>()));
      // Its gray has 0.2989 for red; its bytes are computed in whole numbers, or cut off.
      const double tolerance = result.dtype() == DType::uint8 ? 1.01 : 3e-4;
      const Tensor reals = result.to(float32);
      double most = 0;
      for (size_t k = 0; k < figures.values.size(); ++k)
        most = std::max<double>(most, std::abs(reals.span<float>()[k] - figures.values[k]));
      BOOST_TEST(most <= tolerance);
    }
  }
}

BOOST_AUTO_TEST_CASE(bytes_are_rounded_reals) {
  const Tensor bytes = dyadic({3, 5, 6}, true), reals = ToFloat()(bytes);
  const std::vector<Transform> all{
      [](const Tensor& x) { return adjust_contrast(x, 1.4); },
      [](const Tensor& x) { return adjust_saturation(x, 0.3); },
      [](const Tensor& x) { return adjust_hue(x, -0.2); },
      [](const Tensor& x) { return grayscale(x, 3); },
      [](const Tensor& x) { return rotate(x, 33); },
      [](const Tensor& x) {
        return resize(x, {4, 9});
      },
  };
  for (size_t i = 0; i < all.size(); ++i) {
    Draws draws;
    const Tensor a = all[i](bytes, draws), b = all[i](reals, draws);
    BOOST_TEST((a.dtype() == DType::uint8 && b.dtype() == float32));
    for (size_t k = 0; k < a.span<uint8_t>().size(); ++k)
      BOOST_TEST_REQUIRE(std::abs(a.span<uint8_t>()[k] - 255 * b.span<float>()[k]) <= 0.501f);
  }
}

BOOST_AUTO_TEST_CASE(erased_parts_are_cut_off_at_the_border) {
  const Tensor erased = erase(ones({2, 3, 4}), -1, 2, {3, 5}, 0.5);
  const std::vector<float> expected{1, 1, .5, .5, 1, 1, .5, .5, 1, 1, 1, 1};
  for (size_t i = 0; i < 24; ++i) BOOST_TEST(erased.span<float>()[i] == expected[i % 12]);
}

BOOST_AUTO_TEST_CASE(what_is_refused) {
  const Tensor image = dyadic({3, 5, 6}), two = dyadic({2, 5, 6});
  Draws draws;
  BOOST_CHECK_EXCEPTION(crop(image, 3, 0, 3), ShapeError,
                        says({"crop", "[3, 5, 6]", "3 x 3", "row 3", "transforms_test.cpp"}));
  BOOST_CHECK_THROW(crop(image, 0, 4, 3), ShapeError);
  BOOST_CHECK_THROW(crop(image, -1, 0, 3), ShapeError);
  BOOST_CHECK_THROW(crop(image, 0, 0, {0, 3}), ShapeError);
  BOOST_CHECK_THROW(crop(image, 0, 0, INT64_MAX), ShapeError);
  BOOST_CHECK_THROW(pad(image, -1), ShapeError);
  BOOST_CHECK_EXCEPTION(pad(image, INT64_MAX / 2), ShapeError, says({"pad", "a border of"}));
  BOOST_CHECK_THROW(RandomCrop(3, {.padding = -1})(image, draws), ShapeError);
  BOOST_CHECK_THROW(RandomCrop(3, {.padding = INT64_MAX})(image, draws), ShapeError);
  BOOST_CHECK_THROW(resize(image, {3, INT64_MAX}), ShapeError);
  BOOST_CHECK_THROW(Resize(INT64_MAX)(image), ShapeError);
  BOOST_CHECK_THROW(Resize(256)(dyadic({1, 1, 5000})), ShapeError);  // 1,280,000 pixels wide
  BOOST_CHECK_THROW(erase(image, 1, 0, INT64_MAX), ShapeError);
  BOOST_CHECK_THROW(resize(image, 0), ShapeError);
  BOOST_CHECK_THROW(rotate(image, NAN), DataError);
  BOOST_CHECK_EXCEPTION(CenterCrop(6)(image), ShapeError, says({"CenterCrop", "[3, 5, 6]", "6 x 6"}));
  BOOST_CHECK_EXCEPTION(RandomCrop(8, {.padding = 1})(image, draws), ShapeError,
                        says({"RandomCrop", "1 pixels"}));
  BOOST_CHECK_EXCEPTION(flip_vertically(image.reshape({15, 6})), ShapeError, says({"[15, 6]"}));
  BOOST_CHECK_EXCEPTION(flip_vertically(zeros({3, 0, 6})), ShapeError, says({"[3, 0, 6]"}));
  BOOST_CHECK_EXCEPTION(flip_horizontally(image.to(int32)), TypeError, says({"int32", "flip_horizontally"}));
  BOOST_CHECK_EXCEPTION(grayscale(Tensor()), TypeError, says({"grayscale", "undefined"}));
  BOOST_CHECK_EXCEPTION(adjust_hue(two, 0.1), ShapeError, says({"adjust_hue", "2 channels"}));
  BOOST_CHECK_THROW(adjust_hue(image, 0.6), DataError);
  BOOST_CHECK_THROW(adjust_contrast(image, -1), DataError);
  BOOST_CHECK_THROW(adjust_brightness(image, NAN), DataError);
  BOOST_CHECK_THROW(grayscale(image, 2), DataError);
  BOOST_CHECK_THROW(erase(image, 0, 0, -1), ShapeError);
  BOOST_CHECK_EXCEPTION(ToFloat()(image), TypeError, says({"ToFloat", "float32"}));
  BOOST_CHECK_EXCEPTION(Normalize({0}, {1})(dyadic({1, 2, 2}, true)), TypeError, says({"ToFloat"}));
  BOOST_CHECK_EXCEPTION(Normalize({0}, {1})(image), ShapeError, says({"[3, 5, 6]", "1 channels"}));
  BOOST_CHECK_THROW(Normalize({0, 0, 0, 0}, {1, 1, 1, 1})(image), ShapeError);
  BOOST_CHECK_EXCEPTION(Normalize({0, 0}, {1}), DataError, says({"2 means", "transforms_test.cpp"}));
  BOOST_CHECK_THROW(Normalize({0}, {0}), DataError);
  BOOST_CHECK_EXCEPTION(RandomHorizontalFlip(1.5), DataError, says({"1.5", "transforms_test.cpp"}));
  BOOST_CHECK_THROW(RandomVerticalFlip(-0.5), DataError);
  BOOST_CHECK_THROW(ColorJitter({.brightness = -1}), DataError);
  BOOST_CHECK_THROW(ColorJitter({.hue = 0.7}), DataError);
  BOOST_CHECK_THROW(ColorJitter({.hue = -0.1}), DataError);
  BOOST_CHECK_NO_THROW(ColorJitter({.hue = 0.5}));
  BOOST_CHECK_THROW(Cutout(0), DataError);
  BOOST_CHECK_THROW(RandomErasing({.probability = 2}), DataError);
  BOOST_CHECK_THROW(RandomErasing({.scale = {0, 0.5}}), DataError);
  BOOST_CHECK_THROW(RandomErasing({.ratio = {2, 1}}), DataError);
  BOOST_CHECK_THROW(RandomResizedCrop(8, {.scale = {0.5, 1.5}}), DataError);
}

BOOST_AUTO_TEST_SUITE_END()
