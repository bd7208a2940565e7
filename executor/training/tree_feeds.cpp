#include "espalier/executor/training/tree_feeds.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "espalier/core/error.h"

namespace espalier {

int64_t TreeFeeds::steps() const {
  int64_t steps = feeds_.empty() ? 1 : INT64_MAX;
  for (const auto& feed : feeds_) steps = std::min(steps, feed->steps());
  return steps;
}

void TreeFeeds::read_sizes(int64_t step, const GivenValues& given, BatchSignature& sizes) const {
  sizes.rows.clear();
  sizes.open.clear();
  for (size_t f = 0; f < feeds_.size(); ++f) {
    const Feed& feed = *feeds_[f];
    if (feed.is_placeholder() && !given.empty()) {
      const Shape& shape = given[f].shape();
      sizes.rows.push_back(shape.rank() ? shape.dims()[0] : 1);
      for (const OpenAxis& open : feed.open_axes()) sizes.open.push_back(shape.dims()[open.axis]);
    } else {
      sizes.rows.push_back(feed.rows(step));
      feed.add_open_sizes(feed.epoch(), step, sizes.open);
    }
  }
}

int64_t TreeFeeds::batch_rows(const BatchSignature& sizes) const {
  std::optional<int64_t> rows;
  for (size_t f = 0; f < feeds_.size(); ++f) {
    const bool counts = has_placeholders_only() || !feeds_[f]->is_placeholder();
    if (counts && feeds_[f]->specs()[0].shape.rank() > 0) rows = std::max(rows.value_or(0), sizes.rows[f]);
  }
  return rows.value_or(1);
}

bool TreeFeeds::shows_rows(size_t feed, const BatchSignature& sizes) const {
  if (feeds_[feed]->specs()[0].shape.rank() == 0) return false;
  return !feeds_[feed]->is_placeholder() || has_placeholders_only() || sizes.rows[feed] == batch_rows(sizes);
}

FeedSizes TreeFeeds::of_each(const BatchSignature& sizes) const {
  FeedSizes all;
  auto open = sizes.open.begin();
  for (size_t f = 0; f < feeds_.size(); ++f) {
    const auto count = static_cast<std::ptrdiff_t>(feeds_[f]->open_axes().size());
    if (feeds_[f]->specs()[0].shape.rank() > 0) all[feeds_[f].get()] = {sizes.rows[f], {open, open + count}};
    open += count;
  }
  return all;
}

bool TreeFeeds::has_open_placeholders() const {
  return std::ranges::any_of(
      feeds_, [](const auto& feed) { return feed->is_placeholder() && !feed->open_axes().empty(); });
}

bool TreeFeeds::has_placeholders() const {
  return std::any_of(feeds_.begin(), feeds_.end(), [](const auto& feed) { return feed->is_placeholder(); });
}

bool TreeFeeds::has_placeholders_only() const {
  return !feeds_.empty() &&
         std::ranges::all_of(feeds_, [](const auto& feed) { return feed->is_placeholder(); });
}

bool TreeFeeds::knows_sizes(int64_t step) const {
  if (has_open_placeholders()) return false;
  const auto full_rows = [](const Feed& feed) {
    const Shape shape = feed.specs()[0].shape;
    return shape.rank() > 0 ? shape.dims()[0] : -1;
  };
  for (const auto& data : feeds_) {
    if (data->is_placeholder() || data->rows(step) == full_rows(*data)) continue;
    for (const auto& feed : feeds_)
      if (feed->is_placeholder() && full_rows(*feed) == full_rows(*data)) return false;
  }
  return true;
}

TreeFeeds TreeFeeds::with_data(const std::shared_ptr<Feed>& other) const {
  std::vector<std::shared_ptr<Feed>> feeds = feeds_;
  for (auto& feed : feeds)
    if (!feed->is_placeholder()) feed = other;
  return TreeFeeds(std::move(feeds));
}

int64_t TreeFeeds::epochs() const {
  int64_t epochs = 0;
  for (const auto& feed : feeds_) epochs += feed->epoch();
  return epochs;
}

void TreeFeeds::next_epoch() const {
  for (const auto& feed : feeds_) feed->next_epoch();
}

}  // namespace espalier
