#include "espalier/data/distributor.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/node.h"
#include "espalier/core/random.h"
#include "espalier/data/end_of_data.h"
#include "espalier/data/views/checked_read.h"

namespace espalier::data {

namespace {

/// The first axis of each column has all rows; other sizes are -1 or a size.
void check_dataset_specs(const std::vector<Spec>& specs, int64_t rows) {
  if (specs.empty()) throw DataError("a dataset of no columns: specs() of the dataset is empty");
  for (size_t column = 0; column < specs.size(); ++column) {
    const Shape& shape = specs[column].shape;
    if (shape.rank() == 0 || shape.dims()[0] != rows)
      throw DataError(fmt::format(
          "specs() of the dataset gives column {} the shape {}, whose first axis is not that of its "
          "{} rows",
          column, shape.str(), rows));
    if (std::any_of(shape.begin(), shape.end(), [](int64_t size) { return size < -1; }))
      throw DataError(fmt::format("specs() of the dataset gives column {} the shape {}: a size is negative",
                                  column, shape.str()));
  }
}

class DatasetFeed : public Feed {
 public:
  DatasetFeed(std::shared_ptr<const Dataset> dataset, const DistributorOptions& options)
      : dataset_(std::move(dataset)), options_(options), rows_(dataset_->rows()) {
    const int64_t size = options.batch_size;
    if (size < 1) throw DataError(fmt::format("batch_size is {}: a batch needs at least one row", size));
    if (options.shuffle && options.shuffle_batches)
      throw DataError("shuffle and shuffle_batches are both set: an order is of rows or of batches");
    if (rows_ <= 0) throw DataError("the columns have 0 rows: there is nothing to feed");
    steps_ = rows_ / size;
    const std::vector<Spec> specs = dataset_->specs();
    check_dataset_specs(specs, rows_);
    for (size_t column = 0; column < specs.size(); ++column)
      for (size_t axis = 1; axis < specs[column].shape.rank(); ++axis)
        if (specs[column].shape.dims()[axis] == -1) open_.push_back({column, axis});
    if (!open_.empty()) show_open_axes();
    if (!options.drop_remainder && rows_ % size) ++steps_;
    if (steps_ == 0)
      throw DataError(fmt::format("drop_remainder leaves no batch: batch_size is {}, and there are {} rows",
                                  size, rows_));
  }

  std::string name() const override { return "distributor"; }
  std::vector<Spec> specs() const override {
    std::vector<Spec> specs = dataset_->specs();
    for (Spec& spec : specs) spec.shape.dims()[0] = rows(0);
    for (const OpenAxis& open : open_) specs[open.output].shape.dims()[open.axis] = nominal_size;
    return specs;
  }
  int64_t steps() const override { return steps_; }
  // Written so that no product can overflow, whatever the batch size.
  int64_t rows(int64_t step) const override { return std::min(options_.batch_size, rows_ - first_row(step)); }

  std::vector<OpenAxis> open_axes() const override { return open_; }
  void add_open_sizes(int64_t epoch, int64_t step, std::vector<int64_t>& sizes) const override {
    if (open_.empty()) return;
    with_rows(epoch, step, 0, rows(step), [&](std::span<const int64_t> batch) {
      const std::vector<int64_t> open = read_all(batch, [&] { return dataset_->open_sizes(batch); });
      if (open.size() != open_.size() || std::ranges::any_of(open, [](int64_t size) { return size < 0; }))
        throw DataError(
            fmt::format("a dataset with {} open axes gave {} sizes for a batch, or a negative one",
                        open_.size(), open.size()));
      sizes.insert(sizes.end(), open.begin(), open.end());
    });
  }

  void read(int64_t epoch, int64_t step, std::span<Tensor> outputs) const override {
    read_rows(epoch, step, 0, step >= 0 && step < steps_ ? rows(step) : 0, outputs);
  }
  void read_part(int64_t epoch, int64_t step, int64_t first, std::span<Tensor> outputs) const override {
    read_rows(epoch, step, first, outputs[0].shape()[0], outputs);
  }

  std::vector<Tensor> columns() const override { return dataset_->columns(); }
  void order(int64_t epoch, std::span<int64_t> rows) const override {
    if (draws_order())
      std::ranges::copy(*shuffled(epoch), rows.begin());
    else
      std::iota(rows.begin(), rows.end(), int64_t{0});
  }

 private:
  using Order = std::shared_ptr<const std::vector<int64_t>>;

  /// `count` rows of the batch, from its row `first` on.
  void read_rows(int64_t epoch, int64_t step, int64_t first, int64_t count, std::span<Tensor> outputs) const {
    if (step < 0 || step >= steps_) throw EndOfData();
    if (const int64_t now = dataset_->rows(); now != rows_)
      throw DataError(
          fmt::format("the dataset has {} rows, and had {} when the feed was made: a feed counts them "
                      "once; make another feed of data that grow",
                      now, rows_));
    with_rows(epoch, step, first, count, [&](std::span<const int64_t> batch) {
      checked_read(*dataset_, {epoch, options_.seed}, batch, outputs);
    });
  }

  /// Calls `f` with the numbers of these rows.
  template <class F>
  void with_rows(int64_t epoch, int64_t step, int64_t first, int64_t count, const F& f) const {
    const int64_t begin = first_row(step) + first;
    if (draws_order()) {
      const auto order = shuffled(epoch);
      f({order->data() + begin, static_cast<size_t>(count)});
    } else {
      // Each thread keeps one list; a nested read, by a dataset that reads from another feed, allocates its
      // own.
      static thread_local std::vector<int64_t> kept;
      std::vector<int64_t> batch = std::move(kept);
      batch.resize(static_cast<size_t>(count));
      std::iota(batch.begin(), batch.end(), begin);
      f(batch);
      kept = std::move(batch);
    }
  }

  bool draws_order() const { return options_.shuffle || options_.shuffle_batches; }
  int64_t first_row(int64_t step) const { return step * options_.batch_size; }

  /// The order of an epoch. Two are kept, since one reader may still be in an epoch when another begins the
  /// next.
  Order shuffled(int64_t epoch) const {
    const std::lock_guard lock(mutex_);
    auto& [of_epoch, order] = orders_[epoch & 1];
    if (!order || of_epoch != epoch) {
      auto fresh = std::make_shared<std::vector<int64_t>>(static_cast<size_t>(rows_));
      if (options_.shuffle)
        permutation(options_.seed, static_cast<uint64_t>(epoch), fresh->data(), rows_);
      else
        shuffle_batches(epoch, *fresh);
      order = std::move(fresh);
      of_epoch = epoch;
    }
    return order;
  }
  void shuffle_batches(int64_t epoch, std::vector<int64_t>& rows) const {
    const int64_t size = options_.batch_size, whole = rows_ / size;
    std::vector<int64_t> batches(static_cast<size_t>(whole));
    permutation(options_.seed, static_cast<uint64_t>(epoch), batches.data(), whole);
    auto to = rows.begin();
    for (const int64_t batch : batches) {
      std::iota(to, to + size, batch * size);
      to += size;
    }
    std::iota(to, rows.end(), whole * size);
  }

  std::shared_ptr<const Dataset> dataset_;
  DistributorOptions options_;
  int64_t rows_ = 0;
  int64_t steps_ = 0;
  std::vector<OpenAxis> open_;
  mutable std::mutex mutex_;
  mutable std::pair<int64_t, Order> orders_[2];
};

}  // namespace

std::shared_ptr<Feed> make_feed(std::shared_ptr<const Dataset> dataset, const DistributorOptions& options) {
  if (!dataset) throw DataError("there is no dataset: the pointer is null");
  return std::make_shared<DatasetFeed>(std::move(dataset), options);
}

Distributor::Distributor(const std::vector<Tensor>& columns, const DistributorOptions& options, Where where)
    : Distributor(located(where, [&] { return std::make_shared<TensorDataset>(columns); }), options, where) {}

Distributor::Distributor(std::shared_ptr<const Dataset> dataset, const DistributorOptions& options,
                         Where where)
    : batch_size_(options.batch_size) {
  located(where, [&] {
    feed_ = make_feed(std::move(dataset), options);
    outputs_ = source_variables(feed_, where);
    rows_ = (steps() - 1) * batch_size_ + feed_->rows(steps() - 1);
  });
}

void Distributor::check_columns(size_t wanted, const Where& where) const {
  located(where, [&] {
    if (wanted != outputs_.size())
      throw DataError(
          fmt::format("get_output_graphs<{}>() of a Distributor with {} columns", wanted, outputs_.size()));
  });
}

}  // namespace espalier::data
