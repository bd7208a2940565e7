#include "espalier/data/dataset.h"

#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/espalier.h"
#include "temporary_folder.h"

using namespace espalier;
using testing::says;

namespace {

std::vector<float> values(const Tensor& tensor) {
  const auto span = tensor.span<float>();
  return {span.begin(), span.end()};
}

/// Buffers for `rows` rows of every column.
std::vector<Tensor> room(const data::Dataset& dataset, int64_t rows) {
  std::vector<Tensor> outputs;
  for (Spec spec : dataset.specs()) {
    spec.shape.dims()[0] = rows;
    outputs.emplace_back(spec.shape, spec.dtype);
  }
  return outputs;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(dataset)

BOOST_AUTO_TEST_CASE(rows_of_any_size_and_layout) {
  const Tensor wide = arange(80).reshape({4, 20});
  Layout turned;
  turned.shape = {20, 4};
  turned.strides = {1, 20};
  const data::TensorDataset dataset({wide, wide.slice(1, 4, 6), tensor({true, false, true, false}),
                                     zeros({4, 0}), arange(4, float64), arange(12, int32).reshape({4, 3})});
  const data::TensorDataset columns({Tensor(wide.storage(), turned, float32)});
  for (const std::vector<int64_t>& rows : std::vector<std::vector<int64_t>>{{1, 2, 3}, {3, 0, 0}, {2}, {}}) {
    std::vector<Tensor> batch = room(dataset, static_cast<int64_t>(rows.size()));
    dataset.read(rows, batch);
    for (int64_t i = 0; i < static_cast<int64_t>(rows.size()); ++i) {
      const int64_t row = rows[static_cast<size_t>(i)];
      for (int64_t k = 0; k < 20; ++k)
        BOOST_TEST(batch[0].at<float>({i, k}) == static_cast<float>(row * 20 + k));
      BOOST_TEST(batch[1].at<float>({i, 1}) == static_cast<float>(row * 20 + 5));
      BOOST_TEST(batch[2].at<bool>({i}) == (row % 2 == 0));
      BOOST_TEST(batch[4].at<double>({i}) == static_cast<double>(row));
      BOOST_TEST(batch[5].at<int32_t>({i, 2}) == row * 3 + 2);
    }
    std::vector<Tensor> turned_batch = room(columns, static_cast<int64_t>(rows.size()));
    columns.read(rows, turned_batch);
    if (!rows.empty()) BOOST_TEST(turned_batch[0].at<float>({0, 2}) == static_cast<float>(rows[0] + 40));
  }
  std::vector<Tensor> one = room(dataset, 1);
  for (const int64_t row : {-1, 4})
    BOOST_CHECK_EXCEPTION(dataset.read({&row, 1}, one), IndexError, says({std::to_string(row), "4 rows"}));
}

BOOST_AUTO_TEST_CASE(rows_are_counted_once) {
  struct Growing : data::Dataset {
    int64_t n = 4;
    int64_t rows() const override { return n; }
    std::vector<Spec> specs() const override { return {{float32, {n, 1}}}; }
    void read(std::span<const int64_t>, std::span<Tensor> outputs) const override {
      std::ranges::fill(outputs[0].span<float>(), 1.0f);
    }
  };
  const auto dataset = std::make_shared<Growing>();
  data::Distributor feed(dataset, {.batch_size = 2});
  const auto [x] = feed.get_output_graphs<1>();
  BOOST_TEST(sum(x).forward().item() == 2);
  for (const int64_t other : {8, 3}) {
    dataset->n = other;
    BOOST_CHECK_EXCEPTION((void)sum(x).forward(), DataError,
                          says({std::to_string(other) + " rows", "had 4"}));
  }
  dataset->n = 8;
  data::Distributor again(dataset, {.batch_size = 2});
  BOOST_TEST(again.steps() == 4);
}

// A Dataset made by std::make_shared is one, and its errors have no line of the standard library.
BOOST_AUTO_TEST_CASE(datasets_made_by_make_shared) {
  const auto dataset = std::make_shared<data::TensorDataset>(std::vector<Tensor>{ones({8, 3}), ones({8, 1})});
  nn::Sequential net{nn::Dense(1)};
  const History history = fit(net, nn::MeanSquared(), dataset, {.epochs = 1, .progress = false});
  BOOST_TEST(history.epochs.size() == 1u);
  BOOST_CHECK_EXCEPTION(
      std::make_shared<data::TensorDataset>(std::vector<Tensor>{}), DataError,
      [](const DataError& e) { return std::string(e.what()).find("c++") == std::string::npos; });
}

BOOST_AUTO_TEST_CASE(split_divides_the_rows) {
  const Tensor x = arange(10).reshape({-1, 1}), y = arange(10, int64);
  std::vector<float> ascending(10);
  std::iota(ascending.begin(), ascending.end(), 0.0f);
  const auto [first, second] = data::split({x, y}, 0.7, 3);
  BOOST_TEST(first[0].shape() == Shape({7, 1}));
  BOOST_TEST(second[1].shape() == Shape({3}));
  std::vector<float> all = values(first[0]);
  const std::vector<float> rest = values(second[0]);
  for (size_t i = 0; i < 7; ++i)
    BOOST_TEST(static_cast<float>(first[1].at<int64_t>({static_cast<int64_t>(i)})) == all[i]);
  all.insert(all.end(), rest.begin(), rest.end());
  BOOST_TEST(all != ascending);
  std::sort(all.begin(), all.end());
  BOOST_TEST(all == ascending);

  BOOST_TEST(values(data::split({x}, 0.7, 3).first[0]) == values(first[0]));
  BOOST_TEST(values(data::split({x}, 0.7, 4).first[0]) != values(first[0]));
  BOOST_TEST(data::split({x}, 1).second[0].shape() == Shape({0, 1}));
  for (const auto& [fraction, rows] : {std::pair(0.66, 7), std::pair(0.64, 6)})
    BOOST_TEST(data::split({x}, fraction).first[0].shape() == Shape({rows, 1}));
  for (const double fraction : {-0.1, 1.5, std::nan("")})
    BOOST_CHECK_EXCEPTION(data::split({x}, fraction), DataError, says({"fraction", "dataset_test.cpp"}));
  BOOST_CHECK_THROW(data::split({x, ones({3})}, 0.5), DataError);
}

BOOST_AUTO_TEST_SUITE_END()
