#include "espalier/executor/training/row_buckets.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/executor/graph/user_names.h"
#include "espalier/executor/sharding/batch_sharding.h"
#include "espalier/ops/ops.h"

namespace espalier {

namespace {

FeedSizes with_rows(FeedSizes sizes, int64_t rows) {
  for (auto& [feed, size] : sizes) size.rows = rows;
  return sizes;
}

[[noreturn]] void refuse(const GraphNode& node, std::string_view why) {
  throw UnsupportedError(
      fmt::format("get_executor: .buckets adds rows to a batch, and {} {}", in_user_words(node), why));
}

/// Null for a value that does not depend on the batch.
std::optional<RowAxis> rows_of(const Graph& graph, ValueRef result, const BatchValue& value) {
  switch (value.sharding) {
    case BatchSharding::replicated: return std::nullopt;
    case BatchSharding::rows:
      if (!value.in_order()) refuse(graph.nodes[result.node], "has rows in another order than the batch");
      return RowAxis{value.axis, value.repeats};
    case BatchSharding::mean: refuse(graph.nodes[result.node], "is a mean over all of them");
    case BatchSharding::sum: refuse(graph.nodes[result.node], "is a sum over all of them");
    case BatchSharding::local:
    case BatchSharding::unshardable: break;
  }
  refuse(graph.nodes[value.cause], "does not compute the rows of its result from one row of the batch each");
}

}  // namespace

BatchSignature in_bucket(const BatchSignature& batch, const TreeFeeds& feeds,
                         const std::vector<int64_t>& buckets) {
  const int64_t rows = feeds.batch_rows(batch);
  int64_t bucket = 0;
  for (const int64_t size : buckets)
    if (size >= rows && (bucket == 0 || size < bucket)) bucket = size;
  if (rows == 0 || bucket == 0) return batch;
  BatchSignature filled = batch;
  auto open = filled.open.begin();
  for (size_t f = 0; f < feeds.size(); ++f) {
    const bool shows = feeds.shows_rows(f, batch);
    if (shows && batch.rows[f] != rows)
      throw UnsupportedError(fmt::format(
          ".buckets adds rows to a batch, and the placeholders have {} and {}: each that is no scalar "
          "shows the rows of the batch, also '{}'; a value that is the same for all rows is a state(), which "
          "set_value() writes",
          rows, batch.rows[f], feeds[f].name()));
    if (shows) filled.rows[f] = bucket;
    for (const OpenAxis& axis : feeds[f].open_axes()) {
      if (shows && axis.axis == 0) *open = bucket;
      ++open;
    }
  }
  return filled;
}

Tensor with_last_row_repeated(const Tensor& tensor, int64_t rows) {
  Tensor order({rows}, int64);
  const int64_t last = tensor.shape()[0] - 1;
  for (int64_t i = 0; i < rows; ++i) order.data<int64_t>()[i] = std::min(i, last);
  const NoGrad no_grad;
  return gather(tensor, order.to(tensor.device())).value();
}

ResultRows rows_of_results(const Setup& setup, const BatchSignature& batch) {
  StepTree tree = setup.tree;
  tree.updates.clear();
  tree.gradients.clear();
  const FeedSizes sizes = setup.feeds.of_each(batch);
  const int64_t rows = setup.feeds.batch_rows(batch), other_rows = 2 * rows;
  const Graph part = freeze(tree, sizes, true).graph;
  const Graph other = [&] {
    try {
      return freeze(tree, with_rows(sizes, other_rows), true).graph;
    } catch (const ShapeError& error) {
      throw UnsupportedError(fmt::format(
          "get_executor: .buckets adds rows to a batch, and the tree fixes their number: {}", error.what()));
    }
  }();
  const BatchShardings shardings = batch_sharding(part, other, {rows, other_rows}, false);
  ResultRows axes;
  for (const ValueRef& result : part.results)
    axes.push_back(rows_of(part, result, shardings[result.node][result.output]));
  return axes;
}

}  // namespace espalier
