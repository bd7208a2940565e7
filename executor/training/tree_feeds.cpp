#include "espalier/executor/training/tree_feeds.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"

namespace espalier {

int64_t TreeFeeds::steps() const {
  int64_t steps = feeds_.empty() ? 1 : INT64_MAX;
  for (const auto& feed : feeds_) steps = std::min(steps, feed->steps());
  return steps;
}

void TreeFeeds::read_rows(int64_t step, BatchRows& rows) const {
  rows.clear();
  for (const auto& feed : feeds_) rows.push_back(feed->rows(step));
}

bool TreeFeeds::has_placeholders() const {
  return std::any_of(feeds_.begin(), feeds_.end(), [](const auto& feed) { return feed->is_placeholder(); });
}

void TreeFeeds::need_data(std::string_view what) const {
  for (const auto& feed : feeds_)
    if (feed->is_placeholder())
      throw DataError(
          fmt::format("{}: placeholder '{}' has no data of its own; use run()", what, feed->name()));
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
