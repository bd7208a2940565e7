// Distributor: feeds the batches of an epoch into a tree of Variables.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

#include "espalier/core/feed.h"
#include "espalier/core/variable.h"
#include "espalier/data/dataset.h"

namespace espalier::data {

struct DistributorOptions {
  /// Rows in a batch. The last batch of an epoch has what is left.
  int64_t batch_size = 1;
  /// Draw a new order of rows for each epoch; otherwise rows keep the order of the dataset.
  bool shuffle = false;
  /// Leave out a last batch that is short.
  bool drop_remainder = false;
  /// Of the orders, and of what a Dataset draws: the same seed gives the same order and the same numbers in
  /// the same epoch, on every run and machine.
  uint64_t seed = 0;
  /// Draw a new order of batches for each epoch, whose rows keep the order of the dataset; a short batch
  /// stays the last. Throws DataError with `shuffle`.
  bool shuffle_batches = false;
};

/// A handle on a feed: copies share it, and its Variables. `columns` (samples, labels, …) have their rows on
/// the first axis. Their buffers are shared, not copied.
class Distributor {
 public:
  using Where = std::source_location;

  Distributor(const Distributor&) = default;  // and no moves: what is moved from stays valid
  Distributor& operator=(const Distributor&) = default;
  /// Throws DataError: no columns, undefined or scalar ones, different numbers of rows, a batch size below 1,
  /// or nothing to show in an epoch.
  explicit Distributor(const std::vector<Tensor>& columns, const DistributorOptions& options = {},
                       Where where = Where::current());
  explicit Distributor(std::shared_ptr<const Dataset> dataset, const DistributorOptions& options = {},
                       Where where = Where::current());

  /// One source Variable for each column, with the batches on the first axis: the same ones each time.
  std::vector<Variable> get_output_graphs() const { return outputs_; }
  /// The same for structured bindings, `auto [x, y] = feed.get_output_graphs<2>();`. Throws DataError if
  /// there are not N columns.
  template <size_t N>
  std::array<Variable, N> get_output_graphs(Where where = Where::current()) const {
    check_columns(N, where);
    return [this]<size_t... I>(std::index_sequence<I...>) { return std::array<Variable, N>{outputs_[I]...}; }
    (std::make_index_sequence<N>());
  }

  /// Begins the next epoch: everything fed from here starts at its first batch, in that epoch's order.
  void reset() { feed_->next_epoch(); }

  /// Batches in an epoch.
  int64_t steps() const { return feed_->steps(); }
  /// Rows shown in an epoch; fewer than there are if `drop_remainder` leaves some out.
  int64_t rows() const { return rows_; }
  int64_t batch_size() const { return batch_size_; }
  const std::shared_ptr<Feed>& feed() const { return feed_; }

 private:
  void check_columns(size_t wanted, const Where& where) const;

  std::shared_ptr<Feed> feed_;
  std::vector<Variable> outputs_;
  int64_t rows_ = 0;
  int64_t batch_size_ = 0;
};

/// The batches of a dataset as a Distributor feeds them, for other readers (see batches.h). Throws DataError
/// as Distributor does.
std::shared_ptr<Feed> make_feed(std::shared_ptr<const Dataset> dataset, const DistributorOptions& options);

}  // namespace espalier::data
