#include "espalier/data/batches.h"

#include <boost/test/unit_test.hpp>
#include <vector>

#include "espalier/core/error.h"
#include "temporary_folder.h"

using namespace espalier;
using data::batches;
using testing::says;

namespace {

struct Columns {
  Tensor x = arange(10).reshape({-1, 1});
  Tensor y = arange(10, int64);
};

template <class Range>
std::vector<int64_t> epoch_of(Range&& range) {
  std::vector<int64_t> seen;
  for (const auto& [a, b] : range) {
    BOOST_TEST(a.shape()[0] == b.shape()[0]);
    for (int64_t i = 0; i < b.shape()[0]; ++i) {
      seen.push_back(b.template at<int64_t>({i}));
      BOOST_TEST(a.template at<float>({i, 0}) == static_cast<float>(seen.back()));
    }
  }
  return seen;
}

}  // namespace

BOOST_FIXTURE_TEST_SUITE(batches_of_rows, Columns)

BOOST_AUTO_TEST_CASE(every_row_once) {
  BOOST_TEST(epoch_of(batches<2>({x, y}, {.batch_size = 3})) ==
             std::vector<int64_t>({0, 1, 2, 3, 4, 5, 6, 7, 8, 9}));
  std::vector<int64_t> rows;
  for (const auto& [a] : batches<1>({x}, {.batch_size = 4})) rows.push_back(a.shape()[0]);
  BOOST_TEST(rows == std::vector<int64_t>({4, 4, 2}));
  BOOST_TEST(epoch_of(batches<2>({x, y}, {.batch_size = 4, .drop_remainder = true})).size() == 8u);
  BOOST_TEST(batches<1>({x}, {.batch_size = 4}).steps() == 3);
}

BOOST_AUTO_TEST_CASE(each_pass_has_the_order_of_a_distributor) {
  const data::DistributorOptions options{.batch_size = 3, .shuffle = true, .seed = 7};
  const auto range = batches<2>({x, y}, options);
  data::Distributor feed({x, y}, options);
  const auto [a, b] = feed.get_output_graphs<2>();
  std::vector<std::vector<int64_t>> epochs;
  for (int epoch = 0; epoch < 4; ++epoch) {
    epochs.push_back(epoch_of(range));
    std::vector<int64_t> fed;
    try {
      while (true)
        for (const int64_t v : b.forward().value().span<int64_t>()) fed.push_back(v);
    } catch (const EndOfData&) {
      feed.reset();
    }
    BOOST_TEST(epochs.back() == fed);
  }
  BOOST_TEST(epochs[0] != epochs[1]);
  BOOST_TEST(epochs[2] != epochs[3]);
}

BOOST_AUTO_TEST_CASE(batches_may_be_kept) {
  const Tensor large = arange(64 * 50'000).reshape({64, -1});  // large enough to be read in the background
  std::vector<Tensor> kept;
  for (const auto& [batch] : batches<1>({large}, {.batch_size = 2})) kept.push_back(batch);
  BOOST_REQUIRE(kept.size() == 32u);
  for (int64_t i = 0; i < 32; ++i)
    for (const int64_t k : {0, 49'999})
      BOOST_TEST(kept[static_cast<size_t>(i)].at<float>({1, k}) == large.at<float>({2 * i + 1, k}));
}

BOOST_AUTO_TEST_CASE(writing_into_a_batch_leaves_the_data_alone) {
  for (const auto& [batch] : batches<1>({x}, {.batch_size = 10})) {
    Tensor mine = batch;
    for (float& v : mine.span<float>()) v = -1;
  }
  BOOST_TEST(x.at<float>({3, 0}) == 3.0f);
}

BOOST_AUTO_TEST_CASE(a_loop_may_be_left) {
  const Tensor large = arange(64 * 50'000).reshape({64, -1});
  const auto range = batches<1>({large}, {.batch_size = 1});
  for (int leave_at = 1; leave_at < 12; ++leave_at) {
    int step = 0;
    for (const auto& [batch] : range) {
      BOOST_TEST(batch.at<float>({0, 0}) == static_cast<float>(step) * 50'000.0f);
      if (++step == leave_at) break;
    }
  }
  try {
    for (const auto& batch : range) throw ShapeError(batch[0].shape().str());
  } catch (const ShapeError&) {
  }
}

BOOST_AUTO_TEST_CASE(loops_may_be_nested) {
  const auto range = batches<1>({x}, {.batch_size = 5});
  std::vector<float> seen;
  for (const auto& [a] : range)
    for (const auto& [b] : range) seen.push_back(a.at<float>({0, 0}) * 10 + b.at<float>({0, 0}));
  BOOST_TEST(seen == std::vector<float>({0, 5, 50, 55}));
}

BOOST_AUTO_TEST_CASE(by_hand) {
  const auto range = batches<1>({x}, {.batch_size = 5});
  static_assert(std::input_iterator<decltype(range.begin())>);
  auto i = range.begin();
  BOOST_TEST((*i)[0].at<float>({0, 0}) == 0.0f);
  i++;
  BOOST_TEST((*i)[0].at<float>({0, 0}) == 5.0f);
  BOOST_CHECK(i != range.end());
  ++i;
  BOOST_CHECK(i == range.end());
}

BOOST_AUTO_TEST_CASE(arguments_that_make_no_sense) {
  BOOST_CHECK_EXCEPTION(batches<1>({x, y}), DataError, says({"batches<1>", "2 columns", "batches_test.cpp"}));
  BOOST_CHECK_EXCEPTION(batches<2>({x, ones({3})}), DataError, says({"10", "3", "batches_test.cpp"}));
  BOOST_CHECK_EXCEPTION(batches<1>({x}, {.batch_size = 0}), DataError,
                        says({"batch_size", "batches_test.cpp"}));
}

BOOST_AUTO_TEST_SUITE_END()
