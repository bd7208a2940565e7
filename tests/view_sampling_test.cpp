// Views whose rows are drawn: anew in each epoch, or once for parts.
#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "dataset_values.h"
#include "espalier/core/error.h"
#include "espalier/data/views/combine.h"
#include "espalier/data/views/padded.h"
#include "espalier/data/views/sample.h"
#include "espalier/data/views/select.h"
#include "espalier/data/views/split.h"
#include "temporary_folder.h"

using namespace espalier;
using namespace espalier::testing;
using data::DatasetPtr;
using Numbers = std::vector<int64_t>;

namespace {

/// 60 labels: 30 of class 7, 20 of class -1, 10 of class 0.
Tensor labels() {
  Numbers values;
  for (int64_t row = 0; row < 60; ++row) values.push_back(row % 6 < 3 ? 7 : row % 6 < 5 ? -1 : 0);
  return tensor_from(values, {60});
}

std::map<int64_t, int> classes_of(const Numbers& rows) {
  std::map<int64_t, int> counts;
  const Tensor all = labels();
  for (const int64_t row : rows) ++counts[all.span<int64_t>()[static_cast<size_t>(row)]];
  return counts;
}

Numbers sorted(Numbers rows) {
  std::ranges::sort(rows);
  return rows;
}

}  // namespace

BOOST_AUTO_TEST_SUITE(view_sampling)

BOOST_AUTO_TEST_CASE(draws_follow_from_seeds_and_epoch) {
  const DatasetPtr source = numbered(60);
  const auto each = [&](uint64_t seed) -> std::vector<DatasetPtr> {
    return {data::shuffle(source, seed), data::weighted_sample(source, ones({60}), {.seed = seed}),
            data::weighted_sample(source, ones({60}), {.rows = 50, .replacement = false, .seed = seed}),
            data::stratified(source, labels(), seed), data::balanced(source, labels(), {.seed = seed})};
  };
  const auto some = each(3), same = each(3), other = each(4);
  for (size_t i = 0; i < some.size(); ++i) BOOST_TEST_CONTEXT("view " << i) {
      const Numbers first = shown_rows(some[i], 1, 2);
      BOOST_TEST(shown_rows(same[i], 1, 2) == first);
      BOOST_TEST(shown_rows(other[i], 1, 2) != first);
      BOOST_TEST(shown_rows(some[i], 2, 2) != first);
      BOOST_TEST(shown_rows(some[i], 1, 3) != first);
      for (int64_t epoch = 0; epoch < 20; ++epoch) (void)shown_rows(some[i], epoch, 2);
      BOOST_TEST(shown_rows(some[i], 1, 2) == first);
    }
}

BOOST_AUTO_TEST_CASE(shuffled_rows_are_all_rows) {
  const DatasetPtr source = numbered(60);
  for (const DatasetPtr& view : {data::shuffle(source), data::stratified(source, labels())}) {
    BOOST_TEST(shown_rows(view, 1) != shown_rows(source));
    BOOST_TEST(sorted(shown_rows(view, 1)) == shown_rows(source));
  }
  std::set<Numbers> groups;
  const DatasetPtr grouped = data::batch(data::shuffle(source), 2);
  for (int64_t epoch = 0; epoch < 3; ++epoch)
    groups.insert([&] {
      const auto first = read_rows(*grouped, {0}, {epoch})[0];
      return Numbers(first.span<int64_t>().begin(), first.span<int64_t>().end());
    }());
  BOOST_TEST(groups.size() == 3u);
}

BOOST_AUTO_TEST_CASE(weights_are_frequencies) {
  const DatasetPtr view =
      data::weighted_sample(numbered(4), tensor({1.0, 0.0, 2.0, 5.0}, float64), {.rows = 80'000});
  std::map<int64_t, int> counts;
  for (const int64_t row : shown_rows(view)) ++counts[row];
  BOOST_TEST(counts.count(1) == 0u);
  // Within five standard deviations of a binomial distribution.
  for (const auto& [row, share] : {std::pair(0, 0.125), std::pair(2, 0.25), std::pair(3, 0.625)})
    BOOST_TEST(std::abs(counts[row] - 80'000 * share) < 5 * std::sqrt(80'000 * share * (1 - share)));

  // Without replacement, the heavier of two rows is first with the probability of its share.
  const DatasetPtr once =
      data::weighted_sample(numbered(3), tensor({3, 1, 0}), {.rows = 2, .replacement = false});
  int first = 0;
  for (int64_t epoch = 0; epoch < 4000; ++epoch) {
    const Numbers rows = shown_rows(once, epoch);
    BOOST_REQUIRE(sorted(rows) == (Numbers{0, 1}));
    first += rows[0] == 0;
  }
  BOOST_TEST(std::abs(first - 3000) < 5 * std::sqrt(4000 * 0.75 * 0.25));
  // The least weight is more than none.
  const DatasetPtr least = data::weighted_sample(numbered(3), tensor({0.0, 5e-324, 1.0}, float64),
                                                 {.rows = 2, .replacement = false});
  for (int64_t epoch = 0; epoch < 10; ++epoch)
    BOOST_TEST(sorted(shown_rows(least, epoch)) == (Numbers{1, 2}));
}

BOOST_AUTO_TEST_CASE(classes_in_proportion_and_equally_often) {
  const Numbers rows = shown_rows(data::stratified(numbered(60), labels()), 5);
  for (size_t begin = 0; begin < 60; begin += 12) {
    auto counts = classes_of(
        {rows.begin() + static_cast<int64_t>(begin), rows.begin() + static_cast<int64_t>(begin) + 12});
    for (const auto& [label, expected] : {std::pair(7, 6), std::pair(-1, 4), std::pair(0, 2)})
      BOOST_TEST(std::abs(counts[label] - expected) <= 1);
  }
  const DatasetPtr balanced = data::balanced(numbered(60), labels());
  BOOST_TEST(balanced->rows() == 90);
  const Numbers equal = shown_rows(balanced, 5);
  for (size_t begin = 0; begin < 90; begin += 3)
    BOOST_TEST(classes_of({equal.begin() + static_cast<int64_t>(begin),
                           equal.begin() + static_cast<int64_t>(begin) + 3})
                   .size() == 3u);
  std::map<int64_t, int> times;
  for (const int64_t row : equal) ++times[row];
  BOOST_TEST(times.size() == 60u);
  for (const auto& [row, count] : times) {
    const int64_t label = labels().span<int64_t>()[static_cast<size_t>(row)];
    if (label == 7) BOOST_TEST(count == 1);
    if (label == 0) BOOST_TEST(count == 3);
    if (label == -1) BOOST_TEST((count == 1 || count == 2));
  }
  BOOST_TEST(data::balanced(numbered(60), labels(), {.rows = 7})->rows() == 7);
}

BOOST_AUTO_TEST_CASE(a_row_that_comes_again_draws_other_numbers) {
  const DatasetPtr view = data::weighted_sample(std::make_shared<DrawingDataset>(2), ones({2}), {.rows = 40});
  std::vector<int64_t> rows(40);
  std::iota(rows.begin(), rows.end(), int64_t{0});
  const std::vector<Tensor> all = read_rows(*view, rows, {3, 1});
  const auto drawn = all[1].span<double>();
  BOOST_TEST(std::set<double>(drawn.begin(), drawn.end()).size() == 40u);
  const Tensor one = read_rows(*view, {17}, {3, 1})[1];
  BOOST_TEST(one.item() == drawn[17]);
}

BOOST_AUTO_TEST_CASE(open_sizes_have_room_for_all) {
  const DatasetPtr view = data::shuffle(data::padded({{ones({1}), ones({4}), ones({2})}}));
  BOOST_TEST(view->open_sizes(Numbers{0}) == Numbers{4});
  BOOST_TEST(read_rows(*view, {0, 1, 2}, {5})[0].shape() == Shape({3, 4}));
}

BOOST_AUTO_TEST_CASE(parts) {
  const DatasetPtr source = numbered(60);
  for (const data::SplitOptions& options :
       {data::SplitOptions{.seed = 1}, data::SplitOptions{.seed = 1, .labels = labels()}}) {
    const auto three = data::random_split(source, {0.5, 0.25, 0.25}, options);
    BOOST_REQUIRE(three.size() == 3u);
    Numbers all;
    for (const DatasetPtr& part : three) std::ranges::copy(shown_rows(part), std::back_inserter(all));
    BOOST_TEST(three[0]->rows() == 30);
    BOOST_TEST(all != shown_rows(source));
    BOOST_TEST(sorted(all) == shown_rows(source));
    if (options.labels.defined()) BOOST_TEST(std::abs(classes_of(shown_rows(three[1]))[0] - 2.5) < 1);
    BOOST_TEST(shown_rows(data::random_split(source, {0.5}, options)[0]) == shown_rows(three[0]));

    Numbers tested;
    for (const data::Fold& fold : data::k_fold(source, 7, options)) {
      const Numbers test = shown_rows(fold.test);
      Numbers both = shown_rows(fold.train);
      BOOST_TEST((test.size() == 8u || test.size() == 9u));
      std::ranges::copy(test, std::back_inserter(both));
      BOOST_TEST(sorted(both) == shown_rows(source));
      std::ranges::copy(test, std::back_inserter(tested));
      if (options.labels.defined()) BOOST_TEST(classes_of(test).size() == 3u);
    }
    BOOST_TEST(sorted(tested) == shown_rows(source));
  }
}

BOOST_AUTO_TEST_CASE(arguments) {
  const DatasetPtr source = numbered(60), none;
  BOOST_CHECK_EXCEPTION(data::shuffle(none), DataError, says({"shuffle", "null", "sampling_test.cpp"}));
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double wrong : {-1.0, std::nan(""), infinity})
    BOOST_CHECK_EXCEPTION(data::weighted_sample(source, full({60}, wrong)), DataError, says({"weight is"}));
  BOOST_CHECK_EXCEPTION(data::weighted_sample(source, zeros({60})), DataError, says({"sum"}));
  BOOST_CHECK_EXCEPTION(data::weighted_sample(source, ones({59})), DataError, says({"[59]", "60 rows"}));
  BOOST_CHECK_EXCEPTION(data::weighted_sample(source, Tensor()), DataError, says({"no weights"}));
  BOOST_CHECK_EXCEPTION(data::weighted_sample(source, ones({60, 1})), DataError, says({"[60, 1]"}));
  BOOST_CHECK_EXCEPTION(data::weighted_sample(source, ones({60}), {.rows = 61, .replacement = false}),
                        DataError, says({"61 rows", "60"}));
  BOOST_CHECK_EXCEPTION(data::weighted_sample(source, ones({60}), {.rows = -1}), DataError, says({"-1"}));
  BOOST_CHECK_EXCEPTION(data::stratified(source, ones({60})), TypeError, says({"float32"}));
  BOOST_CHECK_EXCEPTION(data::balanced(source, arange(3, int64)), DataError, says({"[3]", "60 rows"}));
  for (const std::vector<double>& wrong : {std::vector<double>{}, {-0.1}, {0.6, 0.6}, {std::nan("")}})
    BOOST_CHECK_EXCEPTION(data::random_split(source, wrong), DataError, says({"random_split"}));
  for (const int64_t wrong : {1, 61, -2})
    BOOST_CHECK_EXCEPTION(data::k_fold(source, wrong), DataError, says({"folds of 60 rows"}));
}

BOOST_AUTO_TEST_CASE(parts_have_all_rows_whatever_is_rounded) {
  for (const int64_t rows : {10, 11, 13}) {
    Numbers all;
    for (const DatasetPtr& part : data::random_split(numbered(rows), {1.0 / 3, 1.0 / 3, 1.0 / 3})) {
      const Numbers own = shown_rows(part);
      all.insert(all.end(), own.begin(), own.end());
    }
    BOOST_TEST(static_cast<int64_t>(sorted(all).size()) == rows);
  }
}

BOOST_AUTO_TEST_CASE(a_small_class_is_shuffled_anew_in_each_turn) {
  Numbers classes(60, 0);
  for (size_t row = 0; row < 6; ++row) classes[row] = 1;
  const Numbers shown = shown_rows(data::balanced(numbered(60), tensor_from(classes, {60})));
  std::set<Numbers> turns;
  Numbers turn;
  for (const int64_t row : shown) {
    if (row >= 6) continue;
    turn.push_back(row);
    if (turn.size() < 6) continue;
    turns.insert(turn);
    turn.clear();
  }
  BOOST_TEST(turns.size() > 5u);  // of 9
}

BOOST_AUTO_TEST_SUITE_END()
