// TreeFeeds: the feeds of a tree, of which each step takes one batch.
#pragma once
#include <compare>
#include <memory>
#include <string_view>
#include <vector>

#include "espalier/core/feed.h"
#include "espalier/executor/graph/graph.h"

namespace espalier {

/// The sizes of a batch that differ from one to another, in the order of the feeds.
struct BatchSignature {
  std::vector<int64_t> rows;  ///< the first sizes of what each feed shows; 1 for scalars
  std::vector<int64_t> open;  ///< the open axes of all feeds
  friend auto operator<=>(const BatchSignature&, const BatchSignature&) = default;
};

/// Values of placeholders, by feed; those of other feeds are undefined. Empty: there are none.
using GivenValues = std::vector<Tensor>;

class TreeFeeds {
 public:
  explicit TreeFeeds(std::vector<std::shared_ptr<Feed>> feeds = {}) : feeds_(std::move(feeds)) {}

  const std::vector<std::shared_ptr<Feed>>& all() const { return feeds_; }
  size_t size() const { return feeds_.size(); }
  Feed& operator[](size_t i) const { return *feeds_[i]; }

  /// Steps in an epoch: as many as every feed has; 1 if there are no feeds.
  int64_t steps() const;
  /// The sizes of the batches of that step in the epochs which the feeds are in. `given` are the values of
  /// the placeholders, by feed; without any, these have the sizes with which they were written.
  void read_sizes(int64_t step, const GivenValues& given, BatchSignature& sizes) const;
  /// The rows of a batch: the largest number that feeds with data of their own show, or placeholders if
  /// these are all; 1 if all are scalars.
  int64_t batch_rows(const BatchSignature& sizes) const;
  /// Whether what that feed shows are rows of the batch, which shards divide. A placeholder beside a feed
  /// with data shows them if its first size is theirs; else it has one value for the whole batch, as scalars
  /// have.
  bool shows_rows(size_t feed, const BatchSignature& sizes) const;
  /// The sizes of the batches of each feed that has a first axis.
  FeedSizes of_each(const BatchSignature& sizes) const;
  /// Whether a placeholder has open axes: then only `Executor::run` knows the sizes of a batch.
  bool has_open_placeholders() const;
  bool has_placeholders() const;
  /// Whether the sizes of that step's batches are known before values are given: not those of open
  /// placeholders, and not of one that was written with the rows of a full batch where this one is short.
  bool knows_sizes(int64_t step) const;
  /// Whether no feed has data of its own, so that there are no epochs and `Executor::run` is what takes
  /// steps.
  bool has_placeholders_only() const;
  /// The same feeds, with another one in the place of each that has data of its own.
  TreeFeeds with_data(const std::shared_ptr<Feed>& other) const;

  /// A number that changes whenever a feed begins another epoch, also by a reset.
  int64_t epochs() const;
  void next_epoch() const;

 private:
  std::vector<std::shared_ptr<Feed>> feeds_;
};

}  // namespace espalier
