// TreeFeeds: the feeds of a tree, of which each step takes one batch.
#pragma once
#include <memory>
#include <string_view>
#include <vector>

#include "espalier/core/feed.h"

namespace espalier {

/// The rows of a batch of each feed, in the order of the feeds.
using BatchRows = std::vector<int64_t>;

class TreeFeeds {
 public:
  explicit TreeFeeds(std::vector<std::shared_ptr<Feed>> feeds = {}) : feeds_(std::move(feeds)) {}

  const std::vector<std::shared_ptr<Feed>>& all() const { return feeds_; }
  size_t size() const { return feeds_.size(); }
  Feed& operator[](size_t i) const { return *feeds_[i]; }

  /// Steps in an epoch: as many as every feed has; 1 if there are no feeds.
  int64_t steps() const;
  void read_rows(int64_t step, BatchRows& rows) const;
  bool has_placeholders() const;
  /// Throws DataError, which begins with `what`, if a placeholder has no data of its own.
  void need_data(std::string_view what) const;

  /// A number that changes whenever a feed begins another epoch, also by a reset.
  int64_t epochs() const;
  void next_epoch() const;

 private:
  std::vector<std::shared_ptr<Feed>> feeds_;
};

}  // namespace espalier
