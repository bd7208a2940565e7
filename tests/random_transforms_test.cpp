// Augmentation of images: what is drawn, and that it repeats itself.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <map>
#include <numbers>
#include <set>

#include "dataset_values.h"
#include "espalier/core/error.h"
#include "espalier/data/batches.h"
#include "espalier/data/transforms.h"
#include "espalier/data/views.h"
#include "espalier/data/workers/loader.h"
#include "espalier/data/workers/parallel.h"
#include "espalier/ops/ops.h"
#include "testing.h"

using namespace espalier;
using namespace espalier::data::transforms;
using namespace espalier::testing;
using data::DatasetPtr, data::Row;

namespace {

constexpr int64_t images_count = 40;

/// Each pixel of each image is another number.
DatasetPtr images(DType dtype = float32) {
  const Tensor pixels = rand({images_count, 3, 6, 7});
  Tensor scaled = pixels.clone();
  if (dtype == DType::uint8)
    for (float& element : scaled.span<float>()) element *= 255;
  return std::make_shared<data::TensorDataset>(std::vector{scaled.to(dtype), arange(images_count, int64)});
}

Compose everything() {
  return {RandomCrop(6, {.padding = 2}),
          RandomResizedCrop({5, 6}),
          RandomHorizontalFlip(),
          RandomVerticalFlip(),
          RandomRotation(20),
          ColorJitter({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4, .hue = 0.1}),
          ToFloat(),
          RandomErasing(),
          Cutout(2),
          Normalize({0.5, 0.5, 0.5}, {0.2, 0.2, 0.2})};
}

std::vector<float> list(const Tensor& tensor) {
  const Tensor plain = tensor.to(float32).contiguous_copy();
  return {plain.span<float>().begin(), plain.span<float>().end()};
}

/// All batches of two epochs, one after the other.
template <class Batches>
std::vector<float> shown(const Batches& batches) {
  std::vector<float> all;
  for (int epoch = 0; epoch < 2; ++epoch)
    for (const auto& [x, y] : batches)
      for (const Tensor& column : {x, y})
        for (const float number : list(column)) all.push_back(number);
  return all;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(random_transforms)

BOOST_AUTO_TEST_CASE(the_same_with_any_number_of_workers) {
  const DatasetPtr mapped = data::map(images(DType::uint8), everything());
  BOOST_TEST((mapped->specs()[0].shape == Shape{images_count, 3, 5, 6}));
  const DatasetPtr mixed =
      data::cutmix(data::mixup(mapped, {.classes = images_count}), {.classes = images_count});
  for (const DatasetPtr& dataset : {mapped, mixed}) {
    const data::DistributorOptions options{.batch_size = 7, .shuffle = true, .seed = 3};
    const std::vector<float> one = shown(data::batches<2>(dataset, options));
    for (const int64_t workers : {1, 3}) {
      BOOST_TEST((shown(data::loader<2>(dataset, options, {.workers = workers})) == one));
      const DatasetPtr divided = data::parallel(dataset, {.workers = workers});
      BOOST_TEST((shown(data::batches<2>(divided, options)) == one));
    }
    BOOST_TEST((shown(data::batches<2>(dataset, {.batch_size = 7, .shuffle = true, .seed = 4})) != one));
    const std::vector<float> first(one.begin(), one.begin() + static_cast<int64_t>(one.size() / 2));
    const std::vector<float> second(one.begin() + static_cast<int64_t>(one.size() / 2), one.end());
    BOOST_TEST((first != second));
  }
  // A row becomes the same in any batch, and something else in another epoch.
  const auto image = [&](int64_t row, int64_t epoch) {
    return list(read_rows(*mixed, {row}, {epoch, 5})[0]);
  };
  const std::vector<float> pair = list(read_rows(*mixed, {9, 4}, {1, 5})[0]);
  BOOST_TEST((std::vector<float>(pair.begin() + 90, pair.end()) == image(4, 1)));
  BOOST_TEST((image(4, 1) != image(4, 2)));
}

BOOST_AUTO_TEST_CASE(a_row_has_other_random_numbers_in_each_epoch) {
  std::vector<double> numbers(200);
  std::set<double> all;
  for (int64_t epoch = 0; epoch < 4; ++epoch) {
    fill_uniform(data::ReadContext{.epoch = epoch, .seed = 3}.random(7), numbers.data(), 200, 0, 1);
    all.insert(numbers.begin(), numbers.end());
  }
  BOOST_TEST(all.size() == 800u);  // also none of another epoch's at another place
}

BOOST_AUTO_TEST_CASE(only_the_first_column_changes) {
  const Row row = Compose{ToFloat()}(Row{zeros({1, 2, 2}, int32), tensor(7)}, {});
  BOOST_TEST((row[0].dtype() == float32 && row[1].item<int64_t>() == 7));
  BOOST_CHECK_THROW((Compose{ToFloat()}(Row{}, {})), DataError);
  const DatasetPtr mapped =
      data::map(images(), Compose{Compose{RandomCrop(4)}, [](const Tensor& x) { return x.to(float64); }});
  BOOST_TEST((mapped->specs()[0] == Spec{float64, {images_count, 3, 4, 4}}));
  BOOST_CHECK_EXCEPTION(data::map(images(), Compose{CenterCrop(9)}), ShapeError,
                        says({"CenterCrop", "9 x 9", "random_transforms_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(crops_are_as_likely_as_each_other) {
  const Tensor image = arange(30).reshape({1, 5, 6});
  std::map<float, int> corners;
  Draws draws({.seed = 1});
  for (int i = 0; i < 6000; ++i) {
    const Tensor part = RandomCrop({4, 4})(image, draws);
    BOOST_TEST_REQUIRE((part.shape() == Shape{1, 4, 4}));
    BOOST_TEST_REQUIRE(part.at<float>({0, 3, 3}) - part.at<float>({0, 0, 0}) == 21);
    ++corners[part.at<float>({0, 0, 0})];
  }
  BOOST_TEST(corners.size() == 6u);  // 2 rows and 3 columns
  for (const auto& [corner, count] : corners) BOOST_TEST(std::abs(count - 1000) < 150);
}

BOOST_AUTO_TEST_CASE(crops_are_filled_beyond_the_image) {
  // All of 2 x 2 pixels with a border of 1 pixel, or a part that has some of it.
  const Tensor image = full({1, 2, 2}, 5);
  Draws draws({.seed = 1});
  BOOST_TEST((list(RandomCrop(4, {.padding = 1, .fill = 7})(image, draws)) ==
              std::vector<float>{7, 7, 7, 7, 7, 5, 5, 7, 7, 5, 5, 7, 7, 7, 7, 7}));
  for (int i = 0; i < 50; ++i)
    for (const float pixel : list(RandomCrop(2, {.padding = 1, .fill = 7})(image, draws)))
      BOOST_TEST((pixel == 5 || pixel == 7));
}

BOOST_AUTO_TEST_CASE(flips_and_erasing_follow_their_probability) {
  const Tensor image = arange(1200).reshape({3, 20, 20});
  Draws draws({.seed = 2});
  int flipped = 0, erased = 0, turned_over = 0;
  const std::vector<float> plain = list(image), over = list(flip_vertically(image));
  for (int i = 0; i < 4000; ++i) {
    flipped += list(RandomHorizontalFlip(0.3)(image, draws))[0] != 0;
    const std::vector<float> vertical = list(RandomVerticalFlip(0.2)(image, draws));
    BOOST_TEST_REQUIRE((vertical == plain || vertical == over));
    turned_over += vertical == over;
    const std::vector<float> pixels = list(RandomErasing({.probability = 0.7, .value = -1})(image, draws));
    const auto missing = std::ranges::count(pixels, -1.0f);
    erased += missing > 0;
    if (missing > 0) BOOST_TEST_REQUIRE((missing >= 3 * 4 && missing <= 3 * 150));  // 0.02 to 0.33 of 400
  }
  BOOST_TEST(std::abs(flipped - 1200) < 120);
  BOOST_TEST(std::abs(turned_over - 800) < 120);
  BOOST_TEST(std::abs(erased - 2800) < 120);
  std::set<int64_t> sizes;
  for (int i = 0; i < 200; ++i)
    sizes.insert(std::ranges::count(list(Cutout(4, -1)(image, draws)), -1.0f) / 3);
  BOOST_TEST((sizes.contains(16) && sizes.contains(12) && *sizes.rbegin() == 16 && *sizes.begin() >= 4));
}

BOOST_AUTO_TEST_CASE(resized_crops_have_the_areas_asked_for) {
  // The means of a ramp's part say where it began and how far it went.
  Tensor ramp({1, 64, 64});
  for (int64_t i = 0; i < 64 * 64; ++i)
    ramp.span<float>()[static_cast<size_t>(i)] = static_cast<float>(i % 64);
  Draws draws({.seed = 3});
  double least = 64, most = 0;
  for (int i = 0; i < 500; ++i) {
    const Tensor part = RandomResizedCrop(32, {.scale = {0.25, 0.25}, .ratio = {0.5, 2}})(ramp, draws);
    const float first = part.at<float>({0, 0, 0}), last = part.at<float>({0, 0, 31});
    const double width = (last - first) * 32 / 31;
    least = std::min(least, width), most = std::max(most, width);
  }
  // 32 x 32 of 64 x 64, as wide as 32 sqrt(1/2) to 32 sqrt(2)
  BOOST_TEST((least > 21 && least < 25 && most > 42 && most < 46.5));
  const Tensor narrow =
      RandomResizedCrop({4, 4}, {.scale = {1, 1}, .ratio = {1, 1}})(rand({1, 2, 50}), draws);
  BOOST_TEST((narrow.shape() == Shape{1, 4, 4}));
}

/// Turned ramps say by their slopes in the middle how far they were turned.
BOOST_AUTO_TEST_CASE(angles_are_even_between_both_ends) {
  const Tensor columns = tile(arange(9), {9, 1}).value().reshape({1, 9, 9}),
               rows = repeat_interleave(arange(9), 9, 0).value().reshape({1, 9, 9});
  const Tensor ramps = concat({columns, rows}, 0).value();
  Draws draws({.seed = 7});
  double least = 0, most = 0, sum = 0;
  for (int i = 0; i < 2000; ++i) {
    const Tensor turned = RandomRotation(-40)(ramps, draws);
    const auto slope = [&](int64_t ramp) {  // along a row
      return (turned.at<float>({ramp, 4, 5}) - turned.at<float>({ramp, 4, 3})) / 2;
    };
    const double angle = std::atan2(slope(1), slope(0)) * 180 / std::numbers::pi;
    least = std::min(least, angle), most = std::max(most, angle), sum += angle;
    if (i < 20) BOOST_TEST(difference(turned, rotate(ramps, angle)) < 1e-4);
  }
  BOOST_TEST((least >= -40.001 && least < -39.7 && most <= 40.001 && most > 39.7), least << " to " << most);
  BOOST_TEST(std::abs(sum / 2000) < 2);
  BOOST_TEST(difference(RandomRotation(0)(ramps, draws), ramps) < 1e-5);
}

BOOST_AUTO_TEST_CASE(jitter_stays_within_its_options) {
  const Tensor image = full({3, 2, 2}, 0.5);
  Draws draws({.seed = 4});
  double least = 1, most = 0;
  for (int i = 0; i < 1000; ++i) {
    const double value = ColorJitter({.brightness = 0.2})(image, draws).at<float>({0, 0, 0});
    least = std::min(least, value), most = std::max(most, value);
  }
  BOOST_TEST((least >= 0.4 - 1e-6 && least < 0.402 && most <= 0.6 + 1e-6 && most > 0.598));
}

/// A red and a gray pixel, of the same brightness: grays are 0.299 red + 0.587 green + 0.114 blue.
BOOST_AUTO_TEST_CASE(each_kind_of_jitter_moves_what_it_is_named_after) {
  const Tensor image = tensor({{{0.6f, 0.4f}}, {{0.2f, 0.4f}}, {{0.2f, 0.4f}}});
  const auto gray = [](const Tensor& t, int64_t x) { return grayscale(t, 1).at<float>({0, 0, x}); };
  const double between = gray(image, 1) - gray(image, 0);
  Draws draws({.seed = 6});
  const auto range = [&](const ColorJitterOptions& options, const std::function<double(const Tensor&)>& of) {
    double least = 1e9, most = -1e9;
    for (int i = 0; i < 500; ++i) {
      const double value = of(ColorJitter(options)(image, draws));
      least = std::min(least, value), most = std::max(most, value);
    }
    return std::pair(least, most);
  };
  // Contrast: differences from the mean gray are multiplied by 0.5 to 1.5.
  const auto contrast = range({.contrast = 0.5}, [&](const Tensor& t) { return gray(t, 1) - gray(t, 0); });
  BOOST_TEST((contrast.first > 0.499 * between && contrast.first < 0.51 * between));
  BOOST_TEST((contrast.second < 1.501 * between && contrast.second > 1.49 * between));
  // Saturation: differences of channels from the gray of the pixel are, and grays stay.
  const auto saturation = range({.saturation = 0.5}, [&](const Tensor& t) {
    BOOST_TEST(std::abs(gray(t, 0) - gray(image, 0)) < 1e-5);
    return t.at<float>({0, 0, 0}) - t.at<float>({1, 0, 0});
  });
  BOOST_TEST((saturation.first > 0.199 && saturation.first < 0.21));
  BOOST_TEST((saturation.second < 0.601 && saturation.second > 0.59));
  // Hue: red goes by up to a tenth of the circle to where green, or blue, is 0.6 of the way up; gray stays.
  const auto hue = range({.hue = 0.1}, [&](const Tensor& t) {
    BOOST_TEST(std::abs(t.at<float>({2, 0, 1}) - 0.4) < 1e-6);
    return t.at<float>({1, 0, 0}) - t.at<float>({2, 0, 0});
  });
  BOOST_TEST((hue.first > -0.241 && hue.first < -0.23 && hue.second < 0.241 && hue.second > 0.23));
}

BOOST_AUTO_TEST_CASE(parts_without_pixels_are_not_chosen) {
  Draws draws(RandomStream{.seed = 4});
  const Tensor image = arange(16).reshape({1, 4, 4});
  for (int i = 0; i < 20; ++i) {
    const Tensor part = RandomResizedCrop({4, 4}, {.scale = {1e-4, 2e-4}, .ratio = {0.9, 1.1}})(image, draws);
    BOOST_TEST(part.at<float>({0, 1, 2}) == 6);  // all of it, since no such part has a pixel
  }
}

BOOST_AUTO_TEST_SUITE_END()
