#include "espalier/data/views/split.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"
#include "espalier/core/random.h"
#include "espalier/data/views/sample.h"
#include "espalier/data/views/select.h"

namespace espalier::data {

namespace {

/// All rows in the order of which parts are blocks.
std::vector<int64_t> split_order(const DatasetPtr& dataset, const SplitOptions& options, const char* call) {
  const int64_t rows = dataset->rows();
  if (options.labels.defined())
    return detail::stratified_order(detail::rows_of_classes(options.labels, rows, call), options.seed, 0);
  std::vector<int64_t> order(static_cast<size_t>(rows));
  permutation(options.seed, 0, order.data(), rows);
  return order;
}

}  // namespace

std::vector<DatasetPtr> random_split(DatasetPtr dataset, const std::vector<double>& fractions,
                                     const SplitOptions& options, std::source_location where) {
  return located(where, [&] {
    check_source(dataset, "random_split");
    double sum = 0;
    for (const double fraction : fractions) {
      if (!(fraction >= 0))
        throw DataError(fmt::format("random_split: the fraction {} is negative", fraction));
      sum += fraction;
    }
    if (fractions.empty()) throw DataError("random_split: there are no fractions");
    if (sum > 1 + 1e-9)
      throw DataError(fmt::format("random_split: the sum of the fractions is {}, above 1", sum));
    const std::vector<int64_t> order = split_order(dataset, options, "random_split");
    std::vector<DatasetPtr> parts;
    size_t begin = 0;
    double until = 0;
    for (const double fraction : fractions) {
      until += fraction;
      const auto end = std::min(order.size(),
                                static_cast<size_t>(std::llround(until * static_cast<double>(order.size()))));
      const std::span<const int64_t> block = std::span(order).subspan(begin, end - begin);
      parts.push_back(select(dataset, {block.begin(), block.end()}));
      begin = end;
    }
    return parts;
  });
}

std::vector<Fold> k_fold(DatasetPtr dataset, int64_t folds, const SplitOptions& options,
                         std::source_location where) {
  return located(where, [&] {
    check_source(dataset, "k_fold");
    const int64_t rows = dataset->rows();
    if (folds < 2 || folds > rows)
      throw DataError(
          fmt::format("k_fold: {} folds of {} rows: there are from 2 to as many as rows", folds, rows));
    const std::vector<int64_t> order = split_order(dataset, options, "k_fold");
    std::vector<Fold> result;
    for (int64_t fold = 0; fold < folds; ++fold) {
      const int64_t begin = rows / folds * fold + std::min(fold, rows % folds);
      const int64_t end = rows / folds * (fold + 1) + std::min(fold + 1, rows % folds);
      std::vector<int64_t> test(order.begin() + begin, order.begin() + end),
          train(order.begin(), order.begin() + begin);
      train.insert(train.end(), order.begin() + end, order.end());
      result.push_back({select(dataset, std::move(train)), select(dataset, std::move(test))});
    }
    return result;
  });
}

}  // namespace espalier::data
