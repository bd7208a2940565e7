#include "espalier/data/views/sample.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "espalier/core/error.h"
#include "espalier/core/random.h"

namespace espalier::data {

namespace {

/// Rows that are drawn anew for each epoch. Four draws are kept, since several readers may be in several
/// epochs.
class DrawnRows : public RowView {
 public:
  std::vector<int64_t> open_sizes(std::span<const int64_t> rows) const override {
    check_rows(rows, this->rows());
    return open_sizes_;
  }

 protected:
  using Draw = std::vector<SourceRow>;
  DrawnRows(const DatasetPtr& source, int64_t rows, uint64_t seed)
      : RowView(source, rows), open_sizes_(longest(*source)), seed_(seed) {}
  /// All rows of an epoch; `seed` is the view's and the feed's.
  virtual Draw draw(uint64_t seed, int64_t epoch) const = 0;

  std::vector<SourceRow> pick(const ReadContext& context, std::span<const int64_t> rows) const override {
    const auto drawn = rows_of(context);
    std::vector<SourceRow> picked;
    for (const int64_t row : rows) picked.push_back((*drawn)[static_cast<size_t>(row)]);
    return picked;
  }

 private:
  struct Kept {
    uint64_t seed = 0;
    int64_t epoch = 0;
    std::shared_ptr<const Draw> draw;
  };

  std::shared_ptr<const Draw> rows_of(const ReadContext& context) const {
    const std::lock_guard lock(mutex_);
    for (const Kept& kept : kept_)
      if (kept.draw && kept.seed == context.seed && kept.epoch == context.epoch) return kept.draw;
    const uint64_t seed = derived_seed(context.seed + 0x5eed, seed_ + 1);
    Kept& kept = kept_[next_++ % std::size(kept_)];
    kept = {context.seed, context.epoch, std::make_shared<const Draw>(draw(seed, context.epoch))};
    return kept.draw;
  }

  static std::vector<int64_t> longest(const Dataset& source) {
    if (open_axes_of(source.specs()) == 0) return {};
    std::vector<int64_t> all(static_cast<size_t>(source.rows()));
    std::iota(all.begin(), all.end(), int64_t{0});
    return source.open_sizes(all);
  }

  std::vector<int64_t> open_sizes_;
  uint64_t seed_;
  mutable std::mutex mutex_;
  mutable Kept kept_[4];
  mutable size_t next_ = 0;
};

std::vector<int64_t> shuffled_rows(uint64_t seed, int64_t epoch, int64_t rows) {
  std::vector<int64_t> order(static_cast<size_t>(rows));
  permutation(seed, static_cast<uint64_t>(epoch), order.data(), rows);
  return order;
}

/// Uniform numbers in [0, 1) of an epoch.
std::vector<double> uniform_numbers(uint64_t seed, int64_t epoch, int64_t count) {
  std::vector<double> numbers(static_cast<size_t>(count));
  fill_uniform(row_stream(seed, epoch, 0), numbers.data(), count, 0, 1);
  return numbers;
}

std::vector<SourceRow> with_showings(const std::vector<int64_t>& rows, int64_t of_source) {
  std::vector<int64_t> shown(static_cast<size_t>(of_source), 0);
  std::vector<SourceRow> result;
  for (const int64_t row : rows) result.push_back({row, shown[static_cast<size_t>(row)]++});
  return result;
}

class ShuffledRows : public DrawnRows {
 public:
  ShuffledRows(const DatasetPtr& source, uint64_t seed) : DrawnRows(source, source->rows(), seed) {}

 protected:
  Draw draw(uint64_t seed, int64_t epoch) const override {
    return with_showings(shuffled_rows(seed, epoch, rows()), rows());
  }
};

class WeightedRows : public DrawnRows {
 public:
  WeightedRows(const DatasetPtr& source, std::vector<double> weights, int64_t rows, bool replacement,
               uint64_t seed)
      : DrawnRows(source, rows, seed), weights_(std::move(weights)), replacement_(replacement) {}

 protected:
  Draw draw(uint64_t seed, int64_t epoch) const override {
    return with_showings(replacement_ ? with_replacement(seed, epoch) : without(seed, epoch),
                         static_cast<int64_t>(weights_.size()));
  }

 private:
  std::vector<int64_t> with_replacement(uint64_t seed, int64_t epoch) const {
    std::vector<double> sums(weights_.size());
    std::partial_sum(weights_.begin(), weights_.end(), sums.begin());
    // Rounding may reach the sum itself: then it is the last row of a weight above 0.
    const auto last = std::ranges::lower_bound(sums, sums.back()) - sums.begin();
    std::vector<int64_t> drawn;
    for (const double number : uniform_numbers(seed, epoch, rows()))
      drawn.push_back(std::min(std::ranges::upper_bound(sums, number * sums.back()) - sums.begin(), last));
    return drawn;
  }

  std::vector<int64_t> without(uint64_t seed, int64_t epoch) const {
    const std::vector<double> numbers = uniform_numbers(seed, epoch, static_cast<int64_t>(weights_.size()));
    std::vector<double> keys(weights_.size());
    for (size_t row = 0; row < keys.size(); ++row)
      keys[row] = weights_[row] > 0 ? std::log1p(-numbers[row]) / weights_[row]
                                    : -std::numeric_limits<double>::infinity();
    std::vector<int64_t> order(keys.size());
    std::iota(order.begin(), order.end(), int64_t{0});
    // Weights above 0 come first also where a key is -infinity by rounding.
    std::ranges::stable_sort(order, [&](int64_t a, int64_t b) {
      const auto i = static_cast<size_t>(a), k = static_cast<size_t>(b);
      return std::pair(weights_[i] > 0, keys[i]) > std::pair(weights_[k] > 0, keys[k]);
    });
    order.resize(static_cast<size_t>(rows()));
    return order;
  }

  std::vector<double> weights_;
  bool replacement_;
};

class StratifiedRows : public DrawnRows {
 public:
  StratifiedRows(const DatasetPtr& source, std::vector<std::vector<int64_t>> classes, uint64_t seed)
      : DrawnRows(source, source->rows(), seed), classes_(std::move(classes)) {}

 protected:
  Draw draw(uint64_t seed, int64_t epoch) const override {
    return with_showings(detail::stratified_order(classes_, seed, epoch), rows());
  }

 private:
  std::vector<std::vector<int64_t>> classes_;
};

class BalancedRows : public DrawnRows {
 public:
  BalancedRows(const DatasetPtr& source, std::vector<std::vector<int64_t>> classes, int64_t rows,
               uint64_t seed)
      : DrawnRows(source, rows, seed), of_source_(source->rows()), classes_(std::move(classes)) {}

 protected:
  Draw draw(uint64_t seed, int64_t epoch) const override {
    const size_t count = classes_.size();
    std::vector<int64_t> drawn, order;
    std::vector<std::vector<int64_t>> orders(count);
    for (int64_t i = 0; i < rows(); ++i) {
      const auto round = static_cast<size_t>(i) / count, at = static_cast<size_t>(i) % count;
      if (at == 0)
        order = shuffled_rows(derived_seed(seed, 2 * round + 1), epoch, static_cast<int64_t>(count));
      const auto chosen = static_cast<size_t>(order[at]);
      const std::vector<int64_t>& own = classes_[chosen];
      const size_t turn = round / own.size(), place = round % own.size();
      if (place == 0)
        orders[chosen] = shuffled_rows(derived_seed(seed, 2 * (turn * count + chosen) + 2), epoch,
                                       static_cast<int64_t>(own.size()));
      drawn.push_back(own[static_cast<size_t>(orders[chosen][place])]);
    }
    return with_showings(drawn, of_source_);
  }

 private:
  int64_t of_source_;
  std::vector<std::vector<int64_t>> classes_;
};

std::vector<double> checked_weights(const Tensor& weights, int64_t rows) {
  if (!weights.defined() || weights.rank() != 1 || weights.shape()[0] != rows)
    throw DataError(
        fmt::format("weighted_sample: {} for {} rows: give it one weight for each",
                    weights.defined() ? "weights of shape " + weights.shape().str() : "no weights", rows));
  const Tensor plain = weights.to(cpu()).to(float64).contiguous_copy();
  const auto values = plain.span<double>();
  double sum = 0;
  for (const double value : values) {
    if (!(value >= 0) || std::isinf(value))
      throw DataError(fmt::format("weighted_sample: a weight is {}", value));
    sum += value;
  }
  if (!(sum > 0) || std::isinf(sum))
    throw DataError(fmt::format("weighted_sample: the sum of the weights is {}", sum));
  return {values.begin(), values.end()};
}

void check_drawn_rows(const char* call, int64_t rows) {
  if (rows < 0) throw DataError(fmt::format("{}: {} rows in an epoch are fewer than none", call, rows));
}

}  // namespace

namespace detail {

std::vector<std::vector<int64_t>> rows_of_classes(const Tensor& labels, int64_t rows, std::string_view call) {
  if (!labels.defined() || labels.rank() != 1 || labels.shape()[0] != rows)
    throw DataError(fmt::format("{}: {} for {} rows: give it one label for each", call,
                                labels.defined() ? "labels of shape " + labels.shape().str() : "no labels",
                                rows));
  if (is_real(labels.dtype()))
    throw TypeError(
        fmt::format("{}: the labels are {}, not integers or booleans", call, name(labels.dtype())));
  const Tensor plain = labels.to(cpu()).to(int64).contiguous_copy();
  std::map<int64_t, std::vector<int64_t>> by_label;
  for (int64_t row = 0; row < rows; ++row) by_label[plain.data<int64_t>()[row]].push_back(row);
  std::vector<std::vector<int64_t>> classes;
  for (auto& [label, own] : by_label) classes.push_back(std::move(own));
  return classes;
}

std::vector<int64_t> stratified_order(const std::vector<std::vector<int64_t>>& classes, uint64_t seed,
                                      int64_t epoch) {
  // The rows of a class lie at equal distances in [0, 1), from a place on that is drawn for it.
  const std::vector<double> starts = uniform_numbers(seed, epoch, static_cast<int64_t>(classes.size()));
  std::vector<std::pair<double, int64_t>> places;
  for (size_t i = 0; i < classes.size(); ++i) {
    const auto count = static_cast<int64_t>(classes[i].size());
    const std::vector<int64_t> order = shuffled_rows(derived_seed(seed, i + 1), epoch, count);
    for (int64_t k = 0; k < count; ++k)
      places.emplace_back((static_cast<double>(k) + starts[i]) / static_cast<double>(count),
                          classes[i][static_cast<size_t>(order[static_cast<size_t>(k)])]);
  }
  std::ranges::sort(places);
  std::vector<int64_t> rows;
  for (const auto& [place, row] : places) rows.push_back(row);
  return rows;
}

}  // namespace detail

DatasetPtr shuffle(DatasetPtr dataset, uint64_t seed, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "shuffle");
    return std::make_shared<ShuffledRows>(dataset, seed);
  });
}

DatasetPtr weighted_sample(DatasetPtr dataset, const Tensor& weights, const WeightedSampleOptions& options,
                           std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "weighted_sample");
    check_drawn_rows("weighted_sample", options.rows);
    std::vector<double> numbers = checked_weights(weights, dataset->rows());
    const int64_t rows = options.rows > 0 ? options.rows : dataset->rows();
    const int64_t can_be_drawn = std::ranges::count_if(numbers, [](double weight) { return weight > 0; });
    if (!options.replacement && rows > can_be_drawn)
      throw DataError(fmt::format(
          "weighted_sample: {} rows without replacement, and {} have a weight above 0", rows, can_be_drawn));
    return std::make_shared<WeightedRows>(dataset, std::move(numbers), rows, options.replacement,
                                          options.seed);
  });
}

DatasetPtr stratified(DatasetPtr dataset, const Tensor& labels, uint64_t seed, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "stratified");
    auto classes = detail::rows_of_classes(labels, dataset->rows(), "stratified");
    return std::make_shared<StratifiedRows>(dataset, std::move(classes), seed);
  });
}

DatasetPtr balanced(DatasetPtr dataset, const Tensor& labels, const BalancedOptions& options,
                    std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "balanced");
    check_drawn_rows("balanced", options.rows);
    auto classes = detail::rows_of_classes(labels, dataset->rows(), "balanced");
    size_t largest = 0;
    for (const auto& own : classes) largest = std::max(largest, own.size());
    if (options.rows > 0 && classes.empty()) throw DataError("balanced: a dataset of 0 rows has no classes");
    const int64_t rows = options.rows > 0 ? options.rows : static_cast<int64_t>(largest * classes.size());
    return std::make_shared<BalancedRows>(dataset, std::move(classes), rows, options.seed);
  });
}

}  // namespace espalier::data
