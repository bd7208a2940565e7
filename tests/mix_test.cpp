// Views that mix images with each other.
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numeric>

#include "dataset_values.h"
#include "espalier/core/error.h"
#include "espalier/data/transforms/transform.h"
#include "espalier/data/views/map.h"
#include "espalier/data/views/mix.h"
#include "espalier/data/views/padded.h"
#include "temporary_folder.h"

using namespace espalier;
using namespace espalier::testing;
using data::DatasetPtr, data::MixOptions;

namespace {

/// Images whose pixels are all their label.
DatasetPtr plain_images(int64_t rows, DType dtype = float32, DType labels = int64) {
  Tensor images({rows, 2, 8, 8});
  for (int64_t i = 0; i < images.elements(); ++i)
    images.span<float>()[static_cast<size_t>(i)] = static_cast<float>(i / 128);
  return std::make_shared<data::TensorDataset>(std::vector{images.to(dtype), arange(rows, labels)});
}

std::vector<int64_t> first_rows(int64_t rows) {
  std::vector<int64_t> all(static_cast<size_t>(rows));
  std::iota(all.begin(), all.end(), int64_t{0});
  return all;
}

struct Moments {
  double mean = 0, variance = 0;
};

/// Of the shares of their own label that rows keep, where another row was mixed in.
Moments moments_of(const Tensor& shares) {
  double sum = 0, squares = 0, count = 0;
  for (int64_t row = 0; row < shares.shape()[0]; ++row) {
    const double own = shares.at<float>({row, row});
    if (own == 1) continue;
    sum += own, squares += own * own, ++count;
  }
  return {sum / count, squares / count - sum / count * (sum / count)};
}

}  // namespace

BOOST_AUTO_TEST_SUITE(mixed_images)

BOOST_AUTO_TEST_CASE(mixup_mixes_images_as_labels) {
  const int64_t rows = 600;
  for (const double alpha : {0.2, 1.0, 4.0})
    for (const DType labels : {int32, int64}) {
      const DatasetPtr mixed =
          data::mixup(plain_images(rows, float32, labels), {.classes = rows, .alpha = alpha});
      BOOST_TEST((mixed->specs()[1] == Spec{float32, {rows, rows}}));
      const std::vector<Tensor> read = read_rows(*mixed, first_rows(rows), {.epoch = 1, .seed = 7});
      for (int64_t row = 0; row < rows; ++row) {
        double expected = 0, sum = 0;
        for (int64_t label = 0; label < rows; ++label) {
          const double share = read[1].at<float>({row, label});
          sum += share, expected += share * static_cast<double>(label);
        }
        BOOST_TEST_REQUIRE(std::abs(sum - 1) < 1e-6);
        for (const int64_t at : {0, 7})
          BOOST_TEST_REQUIRE(std::abs(read[0].at<float>({row, 1, at, 3}) - expected) < 1e-3);
      }
      // The variance of the beta distribution of (alpha, alpha); rows that met themselves are few.
      const Moments moments = moments_of(read[1]);
      BOOST_TEST(std::abs(moments.mean - 0.5) < 0.05);
      BOOST_TEST(std::abs(moments.variance / (1 / (8 * alpha + 4)) - 1) < 0.2);
    }
}

BOOST_AUTO_TEST_CASE(cutmix_takes_a_part) {
  for (const DType dtype : {float32, DType::uint8, float64}) {
    const DatasetPtr mixed = data::cutmix(plain_images(200, dtype), {.classes = 200, .alpha = 1});
    const std::vector<Tensor> read = read_rows(*mixed, first_rows(200), {.epoch = 0, .seed = 1});
    BOOST_TEST((read[0].dtype() == dtype));
    const Tensor images = read[0].to(float32);
    for (int64_t row = 0; row < 200; ++row) {
      int64_t own = 0, other = -1;
      for (int64_t i = 0; i < 128; ++i) {
        const auto pixel = static_cast<int64_t>(images.span<float>()[static_cast<size_t>(row * 128 + i)]);
        BOOST_TEST_REQUIRE((pixel == row || other < 0 || pixel == other));
        if (pixel == row) ++own;
        if (pixel != row) other = pixel;
      }
      if (other < 0) continue;
      BOOST_TEST_REQUIRE(std::abs(read[1].at<float>({row, row}) - static_cast<double>(own) / 128) < 1e-6);
      BOOST_TEST_REQUIRE(std::abs(read[1].at<float>({row, other}) - 1 + static_cast<double>(own) / 128) <
                         1e-6);
    }
  }
}

BOOST_AUTO_TEST_CASE(a_row_that_meets_itself_is_augmented_twice) {
  const data::RowFunction noise = [](const data::Row& row, const data::RowContext& context) -> data::Row {
    return {full(row[0].shape(), data::transforms::Draws(context.random).uniform()), row[1]};
  };
  const DatasetPtr noisy = data::map(plain_images(1), noise);
  const DatasetPtr mixed = data::cutmix(noisy, {.classes = 1, .alpha = 1});
  int two_numbers = 0;
  for (int64_t epoch = 0; epoch < 20; ++epoch) {
    const Tensor image = read_rows(*mixed, {0}, {.epoch = epoch, .seed = 3})[0];
    const auto pixels = image.span<float>();
    two_numbers += std::ranges::any_of(pixels, [&](float pixel) { return pixel != pixels[0]; });
  }
  BOOST_TEST(two_numbers > 10);
}

BOOST_AUTO_TEST_CASE(some_rows_only) {
  const DatasetPtr mixed = data::mixup(plain_images(500), {.classes = 500, .alpha = 1, .probability = 0.3});
  const Tensor shares = read_rows(*mixed, first_rows(500))[1];
  int64_t whole = 0;
  for (int64_t row = 0; row < 500; ++row) whole += shares.at<float>({row, row}) == 1;
  BOOST_TEST(std::abs(static_cast<double>(whole) - 350) < 50);
}

BOOST_AUTO_TEST_CASE(what_is_refused) {
  const DatasetPtr images = plain_images(3);
  const auto columns = [](std::vector<Tensor> list) { return std::make_shared<data::TensorDataset>(list); };
  BOOST_CHECK_EXCEPTION(data::mixup(nullptr, {.classes = 3}), DataError, says({"mixup", "mix_test.cpp"}));
  BOOST_CHECK_EXCEPTION(data::cutmix(images, {}), DataError, says({"cutmix: .classes is 0"}));
  BOOST_CHECK_EXCEPTION(data::mixup(images, {.classes = 3, .alpha = 0}), DataError, says({"alpha is 0"}));
  BOOST_CHECK_THROW(data::mixup(images, {.classes = 3, .alpha = NAN}), DataError);
  BOOST_CHECK_EXCEPTION(data::mixup(images, {.classes = 3, .probability = 2}), DataError,
                        says({"probability"}));
  BOOST_CHECK_EXCEPTION(data::mixup(plain_images(3, DType::uint8), {.classes = 3}), TypeError,
                        says({"uint8"}));
  BOOST_CHECK_EXCEPTION(data::mixup(columns({ones({3, 1, 2, 2})}), {.classes = 3}), DataError,
                        says({"1 columns"}));
  BOOST_CHECK_EXCEPTION(data::mixup(columns({ones({3, 1, 2, 2}), ones({3})}), {.classes = 3}), DataError,
                        says({"float32 [3]"}));
  BOOST_CHECK_EXCEPTION(data::cutmix(columns({ones({3, 4}), arange(3, int64)}), {.classes = 3}), DataError,
                        says({"cutmix", "[3, 4]"}));
  BOOST_CHECK_EXCEPTION(data::mixup(plain_images(0), {.classes = 3}), DataError, says({"no rows"}));
  BOOST_CHECK_EXCEPTION(
      data::mixup(data::padded({{ones({1}), ones({2})}, {tensor(0), tensor(1)}}), {.classes = 3}), DataError,
      says({"open"}));
  BOOST_CHECK_EXCEPTION(read_rows(*data::mixup(images, {.classes = 2}), {2}), IndexError,
                        says({"mixup", "row 2", "2 classes"}));
  BOOST_CHECK_THROW(read_rows(*data::mixup(images, {.classes = 3}), {3}), IndexError);
}

BOOST_AUTO_TEST_SUITE_END()
