// Batches for a loop of one's own.
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <iterator>
#include <memory>
#include <source_location>
#include <utility>
#include <vector>

#include "espalier/core/error.h"
#include "espalier/core/feed.h"
#include "espalier/data/distributor.h"
#include "espalier/data/prefetch.h"

namespace espalier::data {

/// What `batches` returns: a range whose every pass is the next epoch, beginning with epoch 0.
template <size_t N>
class Batches {
 public:
  /// An input iterator: copies share the pass. While a loop's body works on one batch, the next is read in
  /// the background where that pays.
  class Iterator {
   public:
    using value_type = std::array<Tensor, N>;
    using difference_type = std::ptrdiff_t;

    const value_type& operator*() const { return batch_; }
    Iterator& operator++() {
      batch_ = {};  // unless other handles keep them, the next batch may reuse the buffers
      located(where_, [&] {
        at_end_ = prefetcher_->at_end();
        if (!at_end_) std::ranges::copy(prefetcher_->next(), batch_.begin());
      });
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const { return at_end_; }

   private:
    friend class Batches;
    Iterator(const std::shared_ptr<Feed>& feed, int64_t epoch, const std::source_location& where)
        : prefetcher_(std::make_shared<Prefetcher>(feed)), where_(where) {
      prefetcher_->start(epoch);
      ++*this;
    }

    std::shared_ptr<Prefetcher> prefetcher_;
    std::source_location where_;
    value_type batch_;
    bool at_end_ = false;
  };

  /// Errors of reading have the line `where`.
  Batches(std::shared_ptr<Feed> feed, const std::source_location& where)
      : feed_(std::move(feed)), where_(where) {}
  Batches(const Batches&) = default;  // and no moves: what is moved from stays valid
  Batches& operator=(const Batches&) = default;

  Iterator begin() const {
    Iterator first(feed_, feed_->epoch(), where_);
    feed_->next_epoch();
    return first;
  }
  std::default_sentinel_t end() const { return {}; }
  /// Batches in an epoch.
  int64_t steps() const { return feed_->steps(); }

 private:
  std::shared_ptr<Feed> feed_;
  std::source_location where_;
};

namespace detail {
std::shared_ptr<Feed> batch_feed(const std::vector<Tensor>& columns, size_t wanted,
                                 const DistributorOptions& options, const std::source_location& where);
std::shared_ptr<Feed> batch_feed(std::shared_ptr<const Dataset> dataset, size_t wanted,
                                 const DistributorOptions& options, const std::source_location& where);
}  // namespace detail

/// The batches of N columns: `for (const auto& [x, y] : batches<2>({data, labels}, {.batch_size = 32})) …`
/// Each pass over it is an epoch and, with `shuffle`, has an order of its own: that in which a Distributor
/// with the same options shows the same epoch. So keep it outside of the loop over epochs: one made anew
/// begins with epoch 0 again. The tensors may be kept without limit. Throws DataError as Distributor does,
/// and if there are not N columns.
template <size_t N>
Batches<N> batches(const std::vector<Tensor>& columns, const DistributorOptions& options = {},
                   std::source_location where = std::source_location::current()) {
  return Batches<N>(detail::batch_feed(columns, N, options, where), where);
}
template <size_t N>
Batches<N> batches(std::shared_ptr<const Dataset> dataset, const DistributorOptions& options = {},
                   std::source_location where = std::source_location::current()) {
  return Batches<N>(detail::batch_feed(std::move(dataset), N, options, where), where);
}

}  // namespace espalier::data
