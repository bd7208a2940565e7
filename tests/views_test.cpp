#include <algorithm>
#include <boost/test/unit_test.hpp>
#include <map>
#include <set>

#include "dataset_values.h"
#include "espalier/core/error.h"
#include "espalier/core/files/safetensors.h"
#include "espalier/data/batches.h"
#include "espalier/data/views/by_length.h"
#include "espalier/data/views/cache.h"
#include "espalier/data/views/combine.h"
#include "espalier/data/views/map.h"
#include "espalier/data/views/padded.h"
#include "espalier/data/views/select.h"
#include "temporary_folder.h"

using namespace espalier;
using namespace espalier::testing;
using data::DatasetPtr, data::Row, data::RowContext;
using Numbers = std::vector<int64_t>;

namespace {

template <class T>
std::vector<T> list(const Tensor& tensor) {
  const Tensor plain = tensor.contiguous_copy();
  const auto values = plain.span<T>();
  return {values.begin(), values.end()};
}

DatasetPtr drawing(int64_t rows) { return std::make_shared<DrawingDataset>(rows); }

/// Rows of 1, 2 and 3 elements.
DatasetPtr triangle() {
  return data::padded({{tensor({1.0f}), tensor({2.0f, 2.0f}), tensor({3.0f, 3.0f, 3.0f})}});
}

}  // namespace

BOOST_AUTO_TEST_SUITE(views)

BOOST_AUTO_TEST_CASE(selected_rows) {
  const DatasetPtr ten = numbered(10);
  const struct {
    DatasetPtr view;
    Numbers rows;
  } cases[] = {
      {data::take(ten, 3), {0, 1, 2}},
      {data::take(ten, 30), shown_rows(ten)},
      {data::take(ten, 0), {}},
      {data::skip(ten, 7), {7, 8, 9}},
      {data::skip(ten, 70), {}},
      {data::shard(ten, 0, 3), {0, 3, 6, 9}},
      {data::shard(ten, 2, 3), {2, 5, 8}},
      {data::shard(ten, 11, 12), {}},
      {data::repeat(data::take(ten, 2), 3), {0, 1, 0, 1, 0, 1}},
      {data::repeat(ten, 0), {}},
      {data::select(ten, {9, 0, 9}), {9, 0, 9}},
      {data::take(data::skip(data::shard(ten, 1, 2), 1), 2), {3, 5}},
      {data::filter(ten, [](const Row& row) { return row[0].item<int64_t>() % 4 == 1; }), {1, 5, 9}},
  };
  for (const auto& [view, rows] : cases) {
    BOOST_TEST(view->rows() == static_cast<int64_t>(rows.size()));
    BOOST_TEST(view->specs()[0].shape == Shape({view->rows()}));
    BOOST_TEST(shown_rows(view) == rows);
    BOOST_CHECK_EXCEPTION(read_rows(*view, {view->rows()}), IndexError, says({std::to_string(view->rows())}));
    BOOST_CHECK_THROW(read_rows(*view, {-1}), IndexError);
  }
}

BOOST_AUTO_TEST_CASE(combined_datasets) {
  const DatasetPtr three = numbered(3),
                   joined = data::concat({three, numbered(0), data::skip(numbered(5), 3), three});
  BOOST_TEST(shown_rows(joined) == (Numbers{0, 1, 2, 3, 4, 0, 1, 2}));
  BOOST_TEST(list<int64_t>(read_rows(*joined, {7, 4, 0, 3, 7})[0]) == (Numbers{2, 4, 0, 3, 2}));

  const DatasetPtr beside = data::zip({three, drawing(3)});
  BOOST_TEST(beside->specs().size() == 3u);
  BOOST_TEST(list<int64_t>(read_rows(*beside, {2, 0})[1]) == (Numbers{2, 0}));
  BOOST_TEST(beside->columns().empty());
  BOOST_TEST(data::zip({three, three})->columns().size() == 2u);

  const DatasetPtr groups = data::batch(numbered(7), 3);
  BOOST_TEST(groups->rows() == 2);
  BOOST_TEST(groups->specs()[0].shape == Shape({2, 3}));
  BOOST_TEST(list<int64_t>(read_rows(*groups, {1, 0})[0]) == (Numbers{3, 4, 5, 0, 1, 2}));
}

BOOST_AUTO_TEST_CASE(what_rows_draw_follows_from_the_source) {
  const DatasetPtr source = drawing(6);
  const auto drawn = [](const DatasetPtr& view, const Numbers& rows, int64_t epoch = 4) {
    return list<double>(read_rows(*view, rows, {epoch, 9})[1]);
  };
  const auto whole = drawn(source, {0, 1, 2, 3, 4, 5});
  BOOST_TEST(drawn(data::take(data::skip(source, 2), 3), {2, 0}) ==
             (std::vector<double>{whole[4], whole[2]}));
  BOOST_TEST(drawn(data::batch(source, 2), {1}) == (std::vector<double>{whole[2], whole[3]}));
  // Each showing draws its own numbers, the first one those of the source.
  const DatasetPtr twice = data::repeat(source, 2);
  const auto both = drawn(twice, {1, 7, 1});
  BOOST_TEST(both[0] == whole[1]);
  BOOST_TEST(both[1] != whole[1]);
  BOOST_TEST(both[2] == whole[1]);
  BOOST_TEST(drawn(twice, {7}) == std::vector<double>{both[1]});
  BOOST_TEST(drawn(twice, {7}, 5) != std::vector<double>{both[1]});
  const auto joined = drawn(data::concat({source, source}), {1, 7});
  BOOST_TEST(joined[0] == whole[1]);
  BOOST_TEST(joined[1] != whole[1]);
}

BOOST_AUTO_TEST_CASE(mapped_rows) {
  const DatasetPtr squares = data::map(numbered(4), [](const Row& row) -> Row {
    const auto x = static_cast<float>(row[0].item<int64_t>());
    return {tensor({x, x * x}), tensor(x > 1)};
  });
  BOOST_TEST(squares->specs()[0].shape == Shape({4, 2}));
  BOOST_CHECK(squares->specs()[1] == (Spec{boolean, {4}}));
  BOOST_TEST(list<float>(read_rows(*squares, {3, 1})[0]) == (std::vector<float>{3, 9, 1, 1}));
  // Views of a row are copied as they look.
  const auto matrix = std::make_shared<data::TensorDataset>(std::vector{arange(12).reshape({2, 2, 3})});
  const DatasetPtr column = data::map(matrix, [](const Row& row) -> Row { return {row[0].slice(1, 1, 2)}; });
  BOOST_TEST(list<float>(read_rows(*column, {1})[0]) == (std::vector<float>{7, 10}));
}

BOOST_AUTO_TEST_CASE(what_a_map_draws) {
  const auto draw = [](const Row& row, const RowContext& context) -> Row {
    double number = 0;
    fill_uniform(context.random, &number, 1, 0, 1);
    Row result = row;
    result.push_back(tensor(number, float64));
    return result;
  };
  const DatasetPtr twice = data::map(data::map(numbered(5), draw), draw);
  const auto values = [&](const Numbers& rows, int64_t epoch, uint64_t seed) {
    const std::vector<Tensor> read = read_rows(*twice, rows, {epoch, seed});
    return std::pair(list<double>(read[1]), list<double>(read[2]));
  };
  const auto [inner, outer] = values({1, 2}, 3, 4);
  BOOST_TEST(inner[0] != outer[0]);
  BOOST_TEST(outer[0] != outer[1]);
  BOOST_CHECK(values({2}, 3, 4) == std::pair(std::vector{inner[1]}, std::vector{outer[1]}));
  BOOST_CHECK(values({1, 2}, 4, 4) != std::pair(inner, outer));
  BOOST_CHECK(values({1, 2}, 3, 5) != std::pair(inner, outer));
}

BOOST_AUTO_TEST_CASE(maps_that_cannot_be) {
  const auto growing = [](const Row& row) -> Row { return {ones({row[0].item<int64_t>() + 1})}; };
  BOOST_CHECK_EXCEPTION(read_rows(*data::map(numbered(3), growing), {0, 2}), DataError,
                        says({"row 2, column 0", "[3]", "[1]"}));
  const auto ends = [](const Row& row) -> Row {
    if (row[0].item<int64_t>() == 2) return {};
    return {row[0].item<int64_t>() == 1 ? Tensor() : row[0]};
  };
  BOOST_CHECK_EXCEPTION(read_rows(*data::map(numbered(3), ends), {2}), DataError,
                        says({"0 columns", "row 2", "1"}));
  BOOST_CHECK_EXCEPTION(read_rows(*data::map(numbered(3), ends), {1}), DataError,
                        says({"undefined", "row 1"}));
  BOOST_CHECK_EXCEPTION(data::map(numbered(0), growing), DataError, says({"no row", "views_test.cpp"}));
  BOOST_TEST(data::map(numbered(0), growing, {{float32, {1}}})->specs()[0].shape == Shape({0, 1}));
  BOOST_CHECK_EXCEPTION(data::map(triangle(), growing), DataError, says({"open", "padded"}));
  BOOST_CHECK_EXCEPTION(data::map(numbered(3), [](const Row&) -> Row { throw std::runtime_error("mine"); }),
                        std::runtime_error, says({"mine"}));
  BOOST_CHECK_EXCEPTION(data::map(numbered(3), std::function<Row(const Row&)>()), DataError,
                        says({"no function", "views_test.cpp"}));
  BOOST_CHECK_EXCEPTION(data::map(numbered(3), data::RowFunction()), DataError, says({"no function"}));
}

BOOST_AUTO_TEST_CASE(padded_rows) {
  const DatasetPtr words = data::padded({{tensor({1.0f}), tensor({2.0f, 2.0f}), tensor({3.0f, 3.0f, 3.0f})},
                                         {tensor(10, int64), tensor(20, int64), tensor(30, int64)},
                                         {ones({1, 2}), ones({2, 2}), ones({2, 1})}},
                                        {.values = {-1}, .lengths = true});
  BOOST_TEST(words->specs().size() == 5u);
  BOOST_TEST((words->specs()[0].shape == Shape({3, -1})));
  BOOST_TEST((words->specs()[2].shape == Shape({3, -1, -1})));
  const std::vector<Tensor> batch = read_rows(*words, {1, 0});
  BOOST_TEST(list<float>(batch[0]) == (std::vector<float>{2, 2, 1, -1}));
  BOOST_TEST(list<int64_t>(batch[1]) == (Numbers{20, 10}));
  BOOST_TEST(list<float>(batch[2]) == (std::vector<float>{1, 1, 1, 1, 1, 1, 0, 0}));
  BOOST_TEST(list<int64_t>(batch[3]) == (Numbers{2, 1}));
  BOOST_TEST(list<int64_t>(batch[4]) == (Numbers{2, 1}));
  // Other views keep the sizes open, and have room for the longest row of a batch.
  BOOST_TEST(data::take(words, 2)->open_sizes(Numbers{0, 1}) == (Numbers{2, 2, 2}));
  const DatasetPtr joined = data::concat({triangle(), data::take(triangle(), 1)});
  BOOST_TEST(list<float>(read_rows(*joined, {3, 1})[0]) == (std::vector<float>{1, 0, 2, 2}));
  BOOST_TEST(list<float>(read_rows(*data::batch(triangle(), 2), {0})[0]) == (std::vector<float>{1, 0, 2, 2}));
  BOOST_TEST(read_rows(*data::cache(triangle()), {0})[0].shape() == Shape({1, 3}));
  BOOST_TEST(data::zip({triangle(), words})->open_sizes(Numbers{0}).size() == 4u);
  // Rows that happen to be of one length have a column of it too.
  const DatasetPtr equal =
      data::padded({{ones({2}), ones({2})}, {tensor(1.0f), tensor(2.0f)}}, {.lengths = true});
  BOOST_TEST(equal->specs().size() == 3u);
  BOOST_TEST(list<int64_t>(read_rows(*equal, {1, 0})[2]) == (Numbers{2, 2}));
}

BOOST_AUTO_TEST_CASE(batches_of_alike_lengths) {
  std::vector<Tensor> texts;
  Numbers lengths;
  for (int64_t row = 0; row < 23; ++row) {
    lengths.push_back(1 + row * 7 % 10);
    texts.push_back(full({lengths.back()}, static_cast<float>(row)));
  }
  const DatasetPtr all = data::padded({texts}, {.lengths = true, .multiple = 4});
  const Tensor sizes = tensor_from(lengths, {23});
  const DatasetPtr view = data::by_length(all, sizes, {.batch_size = 5, .seed = 1});
  BOOST_TEST(view->rows() == 23);
  Numbers shown, begins;
  for (int64_t begin = 0; begin < 23; begin += 5) {
    Numbers rows, own;
    for (int64_t row = begin; row < std::min<int64_t>(23, begin + 5); ++row) rows.push_back(row);
    const std::vector<Tensor> batch = read_rows(*view, rows);
    for (size_t i = 0; i < rows.size(); ++i) {
      shown.push_back(static_cast<int64_t>(batch[0].at<float>({static_cast<int64_t>(i), 0})));
      own.push_back(lengths[static_cast<size_t>(shown.back())]);
    }
    BOOST_TEST(list<int64_t>(batch[1]) == own);
    const int64_t longest = std::ranges::max(own);
    BOOST_TEST(longest - std::ranges::min(own) <= 3);
    BOOST_TEST(batch[0].shape()[1] == (longest + 3) / 4 * 4);  // a multiple of 4
    begins.push_back(longest);
  }
  BOOST_TEST(!std::ranges::is_sorted(begins));  // batches in a random order
  const DatasetPtr alike = data::by_length(numbered(20), zeros({20}, int64), {.batch_size = 20});
  BOOST_TEST(!std::ranges::is_sorted(shown_rows(alike)));  // and rows of one length
  std::ranges::sort(shown);
  BOOST_TEST(shown == shown_rows(numbered(23)));
  std::vector<std::vector<Numbers>> epochs;
  const auto feed = data::batches<2>(view, {.batch_size = 5, .shuffle_batches = true});
  for (int epoch = 0; epoch < 3; ++epoch) {
    std::vector<Numbers> batches;
    for (const auto& [text, length] : feed) {
      const Numbers own = list<int64_t>(length);
      BOOST_TEST(text.shape()[1] == (std::ranges::max(own) + 3) / 4 * 4);
      batches.push_back(own);
    }
    BOOST_TEST(batches.back().size() == 3u);  // the short batch
    epochs.push_back(batches);
  }
  BOOST_TEST((epochs[0] != epochs[1] || epochs[1] != epochs[2]));
  for (std::vector<Numbers>& batches : epochs) std::ranges::sort(batches);
  BOOST_TEST((epochs[0] == epochs[1] && epochs[1] == epochs[2]));
  BOOST_CHECK_EXCEPTION(data::Distributor(view, {.shuffle = true, .shuffle_batches = true}), DataError,
                        says({"shuffle_batches", "views_test"}));
  BOOST_CHECK_EXCEPTION(data::by_length(all, tensor({1})), DataError, says({"[1]", "23 rows", "views_test"}));
  BOOST_CHECK_THROW(data::by_length(all, sizes.to(float32)), TypeError);
  BOOST_CHECK_EXCEPTION(data::by_length(all, sizes, {.batch_size = 0}), DataError, says({"batch size of 0"}));
  BOOST_CHECK_EXCEPTION(data::padded({{ones({1})}}, {.multiple = 0}), DataError, says({"multiples of 0"}));
}

BOOST_AUTO_TEST_CASE(padding_that_cannot_be) {
  const Tensor one = tensor({1.0f});
  BOOST_CHECK_EXCEPTION(data::padded({}), DataError, says({"no columns", "views_test.cpp"}));
  BOOST_CHECK_EXCEPTION(data::padded({{}}), DataError, says({"0 rows"}));
  BOOST_CHECK_EXCEPTION(data::padded({{one}, {one, one}}), DataError, says({"column 1", "2"}));
  BOOST_CHECK_EXCEPTION(data::padded({{one, Tensor()}}), DataError, says({"row 1 of column 0", "undefined"}));
  BOOST_CHECK_EXCEPTION(data::padded({{one, ones({1, 1})}}), DataError, says({"[1, 1]", "[1]"}));
  BOOST_CHECK_EXCEPTION(data::padded({{one, tensor({1})}}), DataError, says({"int64", "float32"}));
  BOOST_CHECK_EXCEPTION(data::padded({{one}}, {.values = {0, 1}}), DataError,
                        says({"2 values for 1 columns"}));
  BOOST_CHECK_THROW(data::padded({{tensor({1})}}, {.values = {0.5}}), TypeError);
}

BOOST_AUTO_TEST_CASE(cached_rows) {
  int reads = 0;
  const DatasetPtr counted = data::map(numbered(600), [&](const Row& row) -> Row {
    ++reads;
    return row;
  });
  reads = 0;
  const DatasetPtr kept = data::cache(counted);
  BOOST_TEST(reads == 600);
  BOOST_TEST(shown_rows(kept) == shown_rows(numbered(600)));
  BOOST_TEST(reads == 600);
  BOOST_TEST(kept->columns().size() == 1u);

  const TemporaryFolder folder;
  const auto file = folder / "rows.cache";
  for (const int expected : {1200, 1200}) {
    BOOST_TEST(shown_rows(data::cache(counted, file)) == shown_rows(numbered(600)));
    BOOST_TEST(reads == expected);
  }
  const DatasetPtr old = data::cache(counted, file);
  BOOST_TEST(shown_rows(data::cache(counted, file, "another"))[5] == 5);
  BOOST_TEST(reads == 1800);
  BOOST_TEST(data::cache(data::take(counted, 10), file, "another")->rows() == 10);
  BOOST_TEST(shown_rows(old)[599] == 599);
  // Rows of another size are other columns.
  for (const int64_t size : {2, 3}) {
    const DatasetPtr sized =
        std::make_shared<data::TensorDataset>(std::vector{full({10, size}, size, int64)});
    BOOST_TEST(list<int64_t>(read_rows(*data::cache(sized, file), {9})[0]) ==
               Numbers(static_cast<size_t>(size), size));
  }
  BOOST_TEST(folder.files() == 1u);
  folder.write("rows.cache", "mine");
  BOOST_CHECK_EXCEPTION(data::cache(counted, file), FileError, says({"rows.cache", "views_test.cpp"}));
  write_safetensors(file, {{"weight", ones({2})}});
  BOOST_CHECK_EXCEPTION(data::cache(counted, file), FileError,
                        says({"rows.cache", "not the file of a cache"}));
  BOOST_TEST(read_safetensors(file)[0].first == "weight");
  BOOST_CHECK_THROW(data::cache(counted, folder / "no/folder"), FileError);
}

BOOST_AUTO_TEST_CASE(arguments) {
  const DatasetPtr ten = numbered(10), none;
  BOOST_CHECK_EXCEPTION(data::take(none, 1), DataError, says({"take", "null", "views_test.cpp"}));
  BOOST_CHECK_THROW(data::skip(none, 1), DataError);
  BOOST_CHECK_THROW(data::shard(none, 0, 1), DataError);
  BOOST_CHECK_THROW(data::batch(none, 1), DataError);
  BOOST_CHECK_THROW(data::cache(none), DataError);
  BOOST_CHECK_EXCEPTION(data::take(ten, -1), DataError, says({"-1"}));
  BOOST_CHECK_EXCEPTION(data::skip(ten, -1), DataError, says({"-1"}));
  BOOST_CHECK_EXCEPTION(data::repeat(ten, -1), DataError, says({"-1"}));
  BOOST_CHECK_EXCEPTION(data::repeat(ten, INT64_MAX), DataError, says({"64 bits"}));
  BOOST_CHECK_EXCEPTION(data::shard(ten, 3, 3), DataError, says({"shard 3 of 3"}));
  BOOST_CHECK_EXCEPTION(data::shard(ten, 0, 0), DataError, says({"shard 0 of 0"}));
  BOOST_CHECK_EXCEPTION(data::select(ten, {10}), IndexError, says({"row 10", "10 rows"}));
  BOOST_CHECK_EXCEPTION(data::batch(ten, 0), DataError, says({"0 rows"}));
  BOOST_CHECK_EXCEPTION(data::concat({}), DataError, says({"no datasets"}));
  BOOST_CHECK_EXCEPTION(data::zip({ten, none}), DataError, says({"null"}));
  BOOST_CHECK_EXCEPTION(data::zip({ten, numbered(9)}), DataError, says({"10 rows", "9"}));
  BOOST_CHECK_EXCEPTION(data::concat({ten, drawing(3)}), DataError, says({"1 columns", "2"}));
  BOOST_CHECK_EXCEPTION(data::concat({ten, triangle()}), DataError, says({"column 0", "int64", "float32"}));
}

BOOST_AUTO_TEST_CASE(reading_without_a_pass_is_the_first_pass_of_seed_0) {
  const DatasetPtr source = drawing(6);
  const DatasetPtr views[] = {data::concat({source, source}), data::zip({source, source}),
                              data::batch(source, 1), data::take(source, 5)};
  for (const DatasetPtr& view : views) {
    const Numbers rows{4, 0, 3};
    const std::vector<Tensor> expected = read_rows(*view, rows);
    std::vector<Tensor> outputs = data::room_for_rows(*view, 3, {});
    view->read(rows, outputs);
    BOOST_TEST(list<int64_t>(outputs[0]) == rows);
    BOOST_TEST(list<double>(outputs[1]) == list<double>(expected[1]));
  }
}

BOOST_AUTO_TEST_SUITE_END()
