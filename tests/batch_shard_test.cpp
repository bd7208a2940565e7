// Shards of batches: every row belongs to exactly one shard.
#include "espalier/executor/sharding/batch_shard.h"

#include <boost/test/unit_test.hpp>

#include "espalier/core/error.h"
#include "espalier/data/distributor.h"
#include "espalier/data/prefetch.h"
#include "testing.h"

using namespace espalier;
using namespace espalier::testing;

namespace {

/// A custom dataset: two columns that contain the number of the row.
struct Numbered : data::Dataset {
  explicit Numbered(int64_t rows) : rows_(rows) {}
  int64_t rows() const override { return rows_; }
  std::vector<Spec> specs() const override { return {{float64, {rows_, 2, 3}}, {int64, {rows_}}}; }
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (rows[i] < 0 || rows[i] >= rows_) throw IndexError("no such row");
      for (size_t k = 0; k < 6; ++k) outputs[0].span<double>()[i * 6 + k] = static_cast<double>(rows[i]);
      outputs[1].span<int64_t>()[i] = rows[i];
    }
  }
  int64_t rows_;
};

/// The same batches from a feed that reads only whole batches, and a scalar for each batch.
struct Whole : Feed {
  explicit Whole(std::shared_ptr<Feed> feed) : feed(std::move(feed)) {}
  std::string name() const override { return "whole"; }
  std::vector<Spec> specs() const override {
    std::vector<Spec> specs = feed->specs();
    specs.push_back({float64, {}});
    return specs;
  }
  int64_t steps() const override { return feed->steps(); }
  int64_t rows(int64_t step) const override { return feed->rows(step); }
  void read(int64_t epoch, int64_t step, std::span<Tensor> outputs) const override {
    feed->read(epoch, step, outputs.first(2));
    outputs[2].span<double>()[0] = static_cast<double>(100 * epoch + step);
  }
  std::shared_ptr<Feed> feed;
};

std::vector<int64_t> labels_of(const Feed& feed, int64_t epoch, int64_t step) {
  const std::vector<Tensor> batch = feed.batch(epoch, step);
  const auto labels = batch[1].span<int64_t>();
  BOOST_TEST(batch[0].shape()[0] == feed.rows(step));
  for (size_t i = 0; i < labels.size(); ++i)
    for (size_t k = 0; k < 6; ++k)
      BOOST_REQUIRE(batch[0].span<double>()[i * 6 + k] == static_cast<double>(labels[i]));
  return {labels.begin(), labels.end()};
}

/// For two epochs: the shards of a batch together are the batch, and an empty shard reads a row of another
/// one.
void check_shares(const std::shared_ptr<const Feed>& feed) {
  for (const int replicas : {1, 2, 3, 5, 8})
    for (int64_t epoch = 0; epoch < 2; ++epoch)
      for (int64_t step = 0; step < feed->steps(); ++step) {
        const std::vector<int64_t> all = labels_of(*feed, epoch, step);
        std::vector<int64_t> together;
        for (int r = 0; r < replicas; ++r) {
          const BatchShard share{r, replicas};
          const ShardedFeed part(feed, share);
          const std::vector<int64_t> own = labels_of(part, epoch, step);
          if (share.counted(feed->rows(step)) == 0)
            BOOST_TEST((own.size() == 1 && std::ranges::count(all, own[0]) == 1));
          else
            together.insert(together.end(), own.begin(), own.end());
        }
        BOOST_TEST((together == all));
      }
}

}  // namespace

BOOST_AUTO_TEST_SUITE(shares)

BOOST_AUTO_TEST_CASE(rows_are_divided_evenly) {
  for (const int replicas : {1, 2, 3, 4, 7, 8, 64, 4096})
    for (const int64_t rows :
         {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{7}, int64_t{8}, int64_t{63}, int64_t{64}, int64_t{65},
          int64_t{1000}, int64_t{5000}, int64_t{1} << 62, INT64_MAX}) {
      int64_t end = 0, counted = 0;
      for (int r = 0; r < replicas; ++r) {
        const BatchShard share{r, replicas};
        const int64_t own = share.counted(rows);
        BOOST_REQUIRE((own == rows / replicas || own == rows / replicas + 1));
        BOOST_REQUIRE(share.rows(rows) == std::max<int64_t>(own, 1));
        BOOST_REQUIRE(share.begin(rows) >= 0);
        BOOST_REQUIRE(share.begin(rows) <= rows - share.rows(rows));
        if (own > 0) BOOST_REQUIRE(share.begin(rows) == end);
        end += own;
        counted += own;
      }
      BOOST_TEST(counted == rows);
    }
}

BOOST_AUTO_TEST_CASE(shards_of_a_feed_cover_each_batch_once) {
  for (const int64_t batch : {1, 2, 4, 7, 20})
    for (const bool shuffle : {false, true})
      for (const bool drop : {false, true})
        BOOST_TEST_CONTEXT("batches of " << batch << " shuffle " << shuffle) {
          const data::DistributorOptions options{
              .batch_size = batch, .shuffle = shuffle, .drop_remainder = drop && batch < 13, .seed = 5};
          const auto own = data::make_feed(std::make_shared<Numbered>(13), options);
          check_shares(own);
          check_shares(std::make_shared<Whole>(own));
          // Columns in memory, with the order of the shard's rows.
          const std::vector<Tensor> columns =
              data::make_feed(std::make_shared<Numbered>(13), {.batch_size = 13})->batch(0, 0);
          const auto in_memory = data::make_feed(std::make_shared<data::TensorDataset>(columns), options);
          check_shares(in_memory);
          for (const int replicas : {2, 3, 8})
            for (int r = 0; r < replicas; ++r) {
              const ShardedFeed part(in_memory, {r, replicas});
              BOOST_TEST(part.columns().size() == 2u);
              for (int64_t epoch = 0; epoch < 2; ++epoch) {
                std::vector<int64_t> order(13, -1), seen;
                part.order(epoch, order);
                for (int64_t step = 0; step < part.steps(); ++step)
                  for (const int64_t row : labels_of(part, epoch, step)) seen.push_back(row);
                BOOST_TEST(std::equal(seen.begin(), seen.end(), order.begin()));
                for (const int64_t row : order) BOOST_TEST((row >= 0 && row < 13));
              }
            }
        }
}

BOOST_AUTO_TEST_CASE(what_has_no_rows_is_the_same_for_all) {
  const auto feed =
      std::make_shared<Whole>(data::make_feed(std::make_shared<Numbered>(5), {.batch_size = 3}));
  const ShardedFeed part(feed, {1, 2});
  BOOST_TEST(part.specs()[0].shape == Shape({2, 2, 3}));
  BOOST_TEST(part.specs()[2].shape == Shape());
  BOOST_TEST(part.batch(4, 1)[2].span<double>()[0] == 401);
  BOOST_TEST(part.name() == "whole");
  BOOST_TEST(!part.is_placeholder());
}

BOOST_AUTO_TEST_CASE(a_prefetcher_reads_shards) {
  const auto feed =
      data::make_feed(std::make_shared<Numbered>(11), {.batch_size = 4, .shuffle = true, .seed = 2});
  std::vector<int64_t> all, seen;
  for (int64_t step = 0; step < 3; ++step)
    for (const int64_t row : labels_of(*feed, 1, step)) all.push_back(row);
  std::vector<std::unique_ptr<data::Prefetcher>> readers;
  for (int r = 0; r < 2; ++r)
    readers.push_back(std::make_unique<data::Prefetcher>(
        std::make_shared<ShardedFeed>(feed, BatchShard{r, 2}),
        [](const Shape& shape, DType dtype) { return Tensor(shape, dtype); }));
  for (const auto& reader : readers) reader->start(1, 0);
  for (int64_t step = 0; step < 3; ++step)
    for (const auto& reader : readers)
      for (const int64_t row : reader->next()[1].span<int64_t>()) seen.push_back(row);
  BOOST_TEST((seen == all));
}

BOOST_AUTO_TEST_SUITE_END()
