#include "espalier/data/distributor.h"

#include <algorithm>
#include <atomic>
#include <boost/test/unit_test.hpp>
#include <numeric>
#include <set>
#include <sstream>
#include <thread>

#include "espalier/core/error.h"
#include "espalier/data/batches.h"
#include "espalier/ops/ops.h"
#include "temporary_folder.h"

using namespace espalier;
using data::Distributor;
using testing::says;

namespace {

/// Two columns with one number per row: 0, 1, 2, …, and ten times that.
struct Columns {
  Tensor x = arange(10).reshape({-1, 1});
  Tensor y = arange(10, int64);
};

std::vector<float> values(const Tensor& tensor) {
  const auto span = tensor.span<float>();
  return {span.begin(), span.end()};
}

/// The values of all steps of an epoch.
std::vector<float> epoch_of(const Variable& v) {
  std::vector<float> seen;
  try {
    while (true)
      for (const float value : values(v.forward().value())) seen.push_back(value);
  } catch (const EndOfData&) {
  }
  return seen;
}

std::vector<float> ascending(size_t n) {
  std::vector<float> list(n);
  std::iota(list.begin(), list.end(), 0.0f);
  return list;
}

/// Five rows, one of which cannot be read until it is repaired.
class BrokenDataset : public data::Dataset {
 public:
  int64_t rows() const override { return 5; }
  std::vector<Spec> specs() const override { return {{float32, {5}}}; }
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] == 2 && broken) throw DataError("row 2 is broken");
      outputs[0].span<float>()[i] = static_cast<float>(rows[i]);
    }
  }
  std::atomic<bool> broken = true;
};

}  // namespace

BOOST_FIXTURE_TEST_SUITE(distributor, Columns)

BOOST_AUTO_TEST_CASE(sizes) {
  const Distributor feed({x, y}, {.batch_size = 3});
  BOOST_TEST(feed.steps() == 4);
  BOOST_TEST(feed.rows() == 10);
  BOOST_TEST(feed.batch_size() == 3);
  const auto [a, b] = feed.get_output_graphs<2>();
  BOOST_TEST(a.shape() == Shape({3, 1}));
  BOOST_TEST(b.shape() == Shape({3}));
  BOOST_CHECK(b.dtype() == int64);

  const Distributor whole({x}, {.batch_size = 3, .drop_remainder = true});
  BOOST_TEST(whole.steps() == 3);
  BOOST_TEST(whole.rows() == 9);

  const Distributor large({x}, {.batch_size = INT64_MAX});
  BOOST_TEST(large.steps() == 1);
  BOOST_TEST(large.rows() == 10);
  BOOST_TEST(large.get_output_graphs<1>()[0].shape() == Shape({10, 1}));
}

BOOST_AUTO_TEST_CASE(rows_come_as_they_lie_unless_shuffled) {
  const Distributor feed({x, y}, {.batch_size = 4});
  const auto [a, b] = feed.get_output_graphs<2>();
  BOOST_TEST(values(a.forward().value()) == std::vector<float>({0, 1, 2, 3}));
  BOOST_TEST(values(a.forward().value()) == std::vector<float>({4, 5, 6, 7}));
  BOOST_TEST(a.forward().value().shape() == Shape({2, 1}));  // the last batch is short
  BOOST_TEST(values(a.value()) == std::vector<float>({8, 9}));
  BOOST_CHECK_THROW(a.forward(), EndOfData);
  BOOST_CHECK_THROW(a.forward(), EndOfData);
  BOOST_TEST(values(a.value()) == std::vector<float>({8, 9}));  // the last value is still there
}

BOOST_AUTO_TEST_CASE(value_takes_no_step) {
  const Distributor feed({x}, {.batch_size = 1});
  const auto [a] = feed.get_output_graphs<1>();
  BOOST_TEST(a.value().item() == 0.0);
  BOOST_TEST(a.value().item() == 0.0);
  BOOST_TEST(a.forward().item() == 0.0);
  BOOST_TEST(a.forward().item() == 1.0);
  BOOST_TEST(a.value().item() == 1.0);
}

BOOST_AUTO_TEST_CASE(printing_takes_the_next_step) {
  const Distributor feed({x}, {.batch_size = 1});
  const auto [a] = feed.get_output_graphs<1>();
  std::ostringstream out;
  out << a << a << a;
  BOOST_TEST(out.str() == "[[0]][[1]][[2]]");
}

BOOST_AUTO_TEST_CASE(each_observed_variable_has_its_cursor) {
  const Distributor feed({x}, {.batch_size = 1});
  const auto [a] = feed.get_output_graphs<1>();
  const Variable n = a + 100.0f;
  BOOST_TEST(n.forward().item() == 100.0);
  BOOST_TEST(epoch_of(a) == ascending(10));
  BOOST_TEST(n.forward().item() == 101.0);
}

BOOST_AUTO_TEST_CASE(a_diamond_takes_one_batch) {
  const Distributor feed({x, x.clone()}, {.batch_size = 1});
  const auto [a, b] = feed.get_output_graphs<2>();
  const Variable diamond = a + a * 10.0f + b * 100.0f;
  for (int step = 0; step < 10; ++step) BOOST_TEST(diamond.forward().item() == 111.0 * step);
  BOOST_CHECK_THROW(diamond.forward(), EndOfData);
}

BOOST_AUTO_TEST_CASE(two_feeds_end_with_the_shorter) {
  const Distributor longer({x}, {.batch_size = 2}), shorter({x}, {.batch_size = 5});
  const Variable both = sum(longer.get_output_graphs<1>()[0]) + sum(shorter.get_output_graphs<1>()[0]);
  BOOST_TEST(both.forward().item() == 0.0 + 1 + 10);
  BOOST_TEST(both.forward().item() == 2.0 + 3 + 35);
  BOOST_CHECK_THROW(both.forward(), EndOfData);
}

BOOST_AUTO_TEST_CASE(reset_rewinds_every_cursor) {
  Distributor feed({x}, {.batch_size = 1});
  const auto [a] = feed.get_output_graphs<1>();
  const Variable n = a * 2.0f;
  for (int epoch = 0; epoch < 3; ++epoch) {
    a.forward();
    n.forward();
    n.forward();
    Distributor copy = feed;  // a handle on the same feed
    copy.reset();
    BOOST_TEST(a.forward().item() == 0.0);
    BOOST_TEST(n.forward().item() == 0.0);
    BOOST_TEST(epoch_of(a).size() == 9u);
    feed.reset();
  }
}

BOOST_AUTO_TEST_CASE(outputs_are_the_same_each_time) {
  const Distributor feed({x, y}, {.batch_size = 1});
  const auto [a, b] = feed.get_output_graphs<2>();
  const std::vector<Variable> again = Distributor(feed).get_output_graphs();
  BOOST_REQUIRE(again.size() == 2u);
  BOOST_TEST(a.node() == again[0].node());
  BOOST_TEST(b.node() == again[1].node());
}

BOOST_AUTO_TEST_CASE(variables_outlive_their_distributor) {
  Variable n;
  {
    const Distributor feed({x.clone()}, {.batch_size = 5});
    n = sum(feed.get_output_graphs<1>()[0]);
  }
  BOOST_TEST(n.forward().item() == 10.0);
  BOOST_TEST(n.forward().item() == 35.0);
}

BOOST_AUTO_TEST_CASE(shuffles_differ_by_epoch_and_seed_and_are_repeatable) {
  const auto epochs_of = [&](uint64_t seed) {
    Distributor feed({x}, {.batch_size = 3, .shuffle = true, .seed = seed});
    const auto [a] = feed.get_output_graphs<1>();
    std::vector<std::vector<float>> epochs;
    for (int i = 0; i < 5; ++i) {
      epochs.push_back(epoch_of(a));
      feed.reset();
      std::vector<float> sorted = epochs.back();
      std::sort(sorted.begin(), sorted.end());
      BOOST_TEST(sorted == ascending(10));
    }
    return epochs;
  };
  const auto seven = epochs_of(7), eight = epochs_of(8);
  BOOST_CHECK(seven == epochs_of(7));
  std::set<std::vector<float>> different{ascending(10)};
  for (const auto& epochs : {seven, eight}) different.insert(epochs.begin(), epochs.end());
  BOOST_TEST(different.size() == 11u);
  // The order of an epoch does not depend on epochs read before.
  Distributor feed({x}, {.batch_size = 3, .shuffle = true, .seed = 7});
  const auto [a] = feed.get_output_graphs<1>();
  for (const size_t epoch : {4u, 0u, 2u, 4u, 1u, 3u}) {
    feed.feed()->set_epoch(static_cast<int64_t>(epoch));
    BOOST_CHECK(epoch_of(a) == seven[epoch]);
  }
}

BOOST_AUTO_TEST_CASE(columns_are_shuffled_alike) {
  const Distributor feed({x, y}, {.batch_size = 3, .shuffle = true});
  const auto [a, b] = feed.get_output_graphs<2>();
  const Variable difference = max(abs(reshape(a, {-1}) - cast(b, float32)));
  for (int64_t step = 0; step < feed.steps(); ++step) BOOST_TEST(difference.forward().item() == 0.0);
}

BOOST_AUTO_TEST_CASE(a_feed_may_be_read_by_several_threads) {
  const Distributor feed({x}, {.batch_size = 1, .shuffle = true});
  std::vector<std::vector<float>> expected(4);
  for (size_t epoch = 0; epoch < 4; ++epoch) {
    const Distributor fresh({x}, {.batch_size = 1, .shuffle = true});
    for (int64_t step = 0; step < 10; ++step)
      expected[epoch].push_back(
          static_cast<float>(fresh.feed()->batch(static_cast<int64_t>(epoch), step)[0].item()));
    for (size_t before = 0; before < epoch; ++before) BOOST_CHECK(expected[epoch] != expected[before]);
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t] {
      for (int64_t i = 0; i < 200; ++i) {
        const int64_t epoch = (i + t) % 4, step = i % 10;
        wrong += feed.feed()->batch(epoch, step)[0].item() !=
                 static_cast<double>(expected[static_cast<size_t>(epoch)][static_cast<size_t>(step)]);
      }
    });
  for (std::thread& thread : threads) thread.join();
  BOOST_TEST(wrong == 0);
  std::vector<Tensor> room{Tensor({1, 1})};
  BOOST_CHECK_THROW(feed.feed()->read(0, 10, room), EndOfData);
  BOOST_CHECK_THROW(feed.feed()->read(0, -1, room), EndOfData);
}

BOOST_AUTO_TEST_CASE(a_dataset_may_read_from_another_feed) {
  struct Reversed : data::Dataset {
    explicit Reversed(const Tensor& x) : inner({x}, {.batch_size = 2}) {}
    int64_t rows() const override { return inner.rows(); }
    std::vector<Spec> specs() const override { return {{float32, {rows(), 1}}}; }
    void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
      for (size_t i = 0; i < rows.size(); ++i) {
        const int64_t row = this->rows() - 1 - rows[i];
        outputs[0].span<float>()[i] = inner.feed()->batch(0, row / 2)[0].at<float>({row % 2, 0});
      }
    }
    Distributor inner;
  };
  const Distributor feed(std::make_shared<Reversed>(x), {.batch_size = 4});
  const auto [a] = feed.get_output_graphs<1>();
  std::vector<float> expected = ascending(10);
  std::reverse(expected.begin(), expected.end());
  for (int i = 0; i < 2; ++i) BOOST_TEST(epoch_of(a + 0.0f) == expected);
}

BOOST_AUTO_TEST_CASE(arguments_that_make_no_sense) {
  const auto fails = [](std::vector<Tensor> columns, data::DistributorOptions options,
                        std::initializer_list<std::string> parts) {
    BOOST_CHECK_EXCEPTION(Distributor(columns, options), DataError, says(parts));
    BOOST_CHECK_EXCEPTION(Distributor(columns, options), DataError, says({"distributor_test.cpp"}));
  };
  fails({ones({3, 4}), ones({5, 6})}, {}, {"[3, 4]", "has 3", "[5, 6]", "has 5", "column 1"});
  fails({x}, {.batch_size = 0}, {"batch_size is 0"});
  fails({x}, {.batch_size = -4}, {"batch_size is -4"});
  fails({}, {}, {"no columns"});
  fails({x, tensor(1.0f)}, {}, {"column 1", "scalar"});
  fails({x, Tensor()}, {}, {"column 1", "undefined"});
  fails({zeros({0, 4})}, {}, {"0 rows"});
  fails({x}, {.batch_size = 11, .drop_remainder = true}, {"drop_remainder", "11", "10"});
  BOOST_CHECK_EXCEPTION(Distributor(std::shared_ptr<data::Dataset>()), DataError, says({"null"}));
  BOOST_CHECK_EXCEPTION(Distributor({x}).get_output_graphs<2>(), DataError,
                        says({"<2>", "1 column", "_test.cpp"}));
}

BOOST_AUTO_TEST_CASE(specs_of_datasets_have_their_rows) {
  struct OfSpecs : data::Dataset {
    explicit OfSpecs(std::vector<espalier::Spec> s) : all(std::move(s)) {}
    int64_t rows() const override { return 6; }
    std::vector<espalier::Spec> specs() const override { return all; }
    void read(std::span<const int64_t>, std::span<Tensor>) const override {}
    std::vector<espalier::Spec> all;
  };
  const auto fails = [](std::vector<espalier::Spec> specs, std::initializer_list<std::string> parts) {
    BOOST_CHECK_EXCEPTION(Distributor(std::make_shared<OfSpecs>(specs)), DataError, says(parts));
  };
  fails({{espalier::float32, {6, 2}}, {espalier::float32, {2, 6}}},
        {"column 1", "[2, 6]", "6 rows", "distributor_test.cpp"});
  fails({{espalier::float32, {-1, 2}}}, {"column 0", "6 rows"});
  fails({{espalier::float32, {}}}, {"column 0", "[]"});
  fails({{espalier::float32, {6, -2}}}, {"column 0", "negative"});
  fails({}, {"no columns"});
  BOOST_CHECK_NO_THROW(
      Distributor(std::make_shared<OfSpecs>(std::vector<espalier::Spec>{{espalier::float32, {6, -1}}})));
}

BOOST_AUTO_TEST_CASE(a_failed_read_takes_no_step) {
  const auto dataset = std::make_shared<BrokenDataset>();
  const Distributor feed(dataset, {.batch_size = 1});
  const Variable n = feed.get_output_graphs<1>()[0] * 10.0f;
  n.forward();
  BOOST_TEST(n.forward().item() == 10.0);
  for (int i = 0; i < 2; ++i) {
    BOOST_CHECK_EXCEPTION(n.forward(), DataError, says({"row 2", "distributor_test.cpp"}));
    BOOST_TEST(n.value().item() == 10.0);
  }
  dataset->broken = false;
  BOOST_TEST(n.forward().item() == 20.0);
  BOOST_TEST(feed.feed()->epoch() == 0);
}

BOOST_AUTO_TEST_CASE(a_failed_op_takes_no_step) {
  const Distributor feed({tensor_from(std::vector<int64_t>{0, 9, 1}, {3})}, {.batch_size = 1});
  const Variable n = gather(tensor({5.0f, 6.0f}), feed.get_output_graphs<1>()[0]);
  BOOST_TEST(n.forward().item() == 5.0);
  BOOST_CHECK_THROW(n.forward(), IndexError);
  BOOST_CHECK_THROW(n.forward(), IndexError);  // still at the second step
}

BOOST_AUTO_TEST_CASE(a_dataset_that_ends_early_is_an_error) {
  struct Short : BrokenDataset {
    void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
      if (rows[0] >= 2) throw EndOfData();
      BrokenDataset::read(rows, outputs);
    }
  };
  const auto dataset = std::make_shared<Short>();
  const Distributor feed(dataset, {.batch_size = 1});
  const Variable n = feed.get_output_graphs<1>()[0] * 1.0f;
  n.forward();
  n.forward();
  BOOST_CHECK_EXCEPTION(n.forward(), DataError, says({"EndOfData", "row 2", "distributor_test.cpp"}));
  int64_t seen = 0;
  const auto loop = [&] {
    for (const auto& [x] : data::batches<1>(dataset, {.batch_size = 1})) seen += x.shape()[0];
  };
  BOOST_CHECK_EXCEPTION(loop(), DataError, says({"EndOfData", "row 2"}));
  BOOST_TEST(seen == 2);
}

BOOST_AUTO_TEST_SUITE_END()
