// Batches for a loop of one's own, read by several threads.
#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

#include "espalier/core/feed.h"
#include "espalier/data/batches.h"
#include "espalier/data/dataset.h"
#include "espalier/data/distributor.h"

namespace espalier::data {

struct LoaderOptions {
  int64_t workers = 4;  ///< threads
  /// Batches come in the order of their epoch; otherwise as they are read, so that none waits for a slow one.
  bool ordered = true;
  int64_t ahead = 2;  ///< batches for each worker that may be read before they are asked for
  /// Seconds that a batch may take from when it is asked for; 0: any time.
  double timeout = 0;
};

/// The workers of one pass over a feed.
class LoaderPass {
 public:
  LoaderPass(std::shared_ptr<const Feed> feed, int64_t epoch, const LoaderOptions& options);
  /// Ends the workers after the batches they are reading. One that has exceeded the time limit, here or
  /// before, is left to itself: it keeps the dataset until it returns.
  ~LoaderPass();
  LoaderPass(const LoaderPass&) = delete;
  LoaderPass& operator=(const LoaderPass&) = delete;

  bool at_end() const;
  /// The next batch. Throws EndOfData after the last one; what the dataset threw, in the place of its batch;
  /// and DataError if the batch takes too long, or a worker ended, naming worker and batch. Errors without a
  /// line get that of `where`.
  std::vector<Tensor> next(const std::source_location& where = std::source_location::current());

 private:
  struct State;
  std::vector<Tensor> take();
  std::shared_ptr<State> state_;
};

/// What `loader` returns: a range whose every pass is the next epoch, beginning with epoch 0.
template <size_t N>
class Loader {
 public:
  /// An input iterator: copies share the pass.
  class Iterator {
   public:
    using value_type = std::array<Tensor, N>;
    using difference_type = std::ptrdiff_t;

    const value_type& operator*() const { return batch_; }
    Iterator& operator++() {
      batch_ = {};
      at_end_ = pass_->at_end();
      if (at_end_) return *this;
      std::vector<Tensor> next = pass_->next(where_);
      for (size_t i = 0; i < N; ++i) batch_[i] = std::move(next[i]);
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return at_end_; }

   private:
    friend class Loader;
    Iterator(std::shared_ptr<LoaderPass> pass, const std::source_location& where)
        : pass_(std::move(pass)), where_(where) {
      ++*this;
    }

    std::shared_ptr<LoaderPass> pass_;
    std::source_location where_;
    value_type batch_;
    bool at_end_ = false;
  };

  Loader(std::shared_ptr<Feed> feed, const LoaderOptions& options, const std::source_location& where)
      : feed_(std::move(feed)), options_(options), where_(where) {}

  Iterator begin() const {
    const int64_t epoch = feed_->epoch();
    feed_->next_epoch();
    return Iterator(std::make_shared<LoaderPass>(feed_, epoch, options_), where_);
  }
  std::default_sentinel_t end() const { return {}; }
  /// Batches in an epoch.
  int64_t steps() const { return feed_->steps(); }

 private:
  std::shared_ptr<Feed> feed_;
  LoaderOptions options_;
  std::source_location where_;  // of the call of `loader`
};

namespace detail {
void check_loader_options(const LoaderOptions& options, const std::source_location& where);
}  // namespace detail

/// The batches of N columns as `batches` has them, read by workers: for datasets that take long to read. What
/// a batch has follows from seed, epoch and its number, whichever worker reads it, so runs are alike with any
/// number of workers; only without `ordered` does the order differ. What a dataset throws reaches the loop,
/// with the line of this call. A loop may be left, and the range destroyed, at any time. `Dataset::read_in`
/// is called from several threads at once. Throws DataError as `batches` does, and for options that make no
/// sense.
template <size_t N>
Loader<N> loader(std::shared_ptr<const Dataset> dataset, const DistributorOptions& batching = {},
                 const LoaderOptions& options = {},
                 std::source_location where = std::source_location::current()) {
  detail::check_loader_options(options, where);
  return Loader<N>(detail::batch_feed(std::move(dataset), N, batching, where), options, where);
}

}  // namespace espalier::data
