#include "espalier/data/views/select.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/data/views/checked_read.h"

namespace espalier::data {

namespace {

class SelectedRows : public RowView {
 public:
  SelectedRows(DatasetPtr source, std::vector<int64_t> rows)
      : RowView(std::move(source), static_cast<int64_t>(rows.size())), selected_(std::move(rows)) {
    check_rows(selected_, this->source().rows());
  }

 protected:
  std::vector<SourceRow> pick(const ReadContext&, std::span<const int64_t> rows) const override {
    std::vector<SourceRow> picked;
    for (const int64_t row : rows) picked.push_back({selected_[static_cast<size_t>(row)]});
    return picked;
  }

 private:
  std::vector<int64_t> selected_;
};

/// Rows first, first + step, …
class SteppedRows : public RowView {
 public:
  SteppedRows(DatasetPtr source, int64_t first, int64_t step, int64_t count)
      : RowView(std::move(source), count), first_(first), step_(step) {}

 protected:
  std::vector<SourceRow> pick(const ReadContext&, std::span<const int64_t> rows) const override {
    std::vector<SourceRow> picked;
    for (const int64_t row : rows) picked.push_back({first_ + row * step_});
    return picked;
  }

 private:
  int64_t first_, step_;
};

class RepeatedRows : public RowView {
 public:
  RepeatedRows(DatasetPtr source, int64_t rows, int64_t all)
      : RowView(std::move(source), all), of_source_(rows) {}

 protected:
  std::vector<SourceRow> pick(const ReadContext&, std::span<const int64_t> rows) const override {
    std::vector<SourceRow> picked;
    for (const int64_t row : rows) picked.push_back({row % of_source_, row / of_source_});
    return picked;
  }

 private:
  int64_t of_source_;
};

void check_count(const char* call, int64_t count) {
  if (count < 0) throw DataError(fmt::format("{}: {} is negative", call, count));
}

}  // namespace

DatasetPtr select(DatasetPtr dataset, std::vector<int64_t> rows, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "select");
    return std::make_shared<SelectedRows>(std::move(dataset), std::move(rows));
  });
}

DatasetPtr take(DatasetPtr dataset, int64_t count, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "take");
    check_count("take", count);
    const int64_t rows = std::min(count, dataset->rows());
    return std::make_shared<SteppedRows>(std::move(dataset), 0, 1, rows);
  });
}

DatasetPtr skip(DatasetPtr dataset, int64_t count, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "skip");
    check_count("skip", count);
    const int64_t first = std::min(count, dataset->rows()), rows = dataset->rows() - first;
    return std::make_shared<SteppedRows>(std::move(dataset), first, 1, rows);
  });
}

DatasetPtr shard(DatasetPtr dataset, int64_t index, int64_t count, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "shard");
    if (index < 0 || index >= count)
      throw DataError(fmt::format("shard: there is no shard {} of {}", index, count));
    const int64_t all = dataset->rows(), rows = all / count + (index < all % count ? 1 : 0);
    return std::make_shared<SteppedRows>(std::move(dataset), index, count, rows);
  });
}

DatasetPtr repeat(DatasetPtr dataset, int64_t times, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "repeat");
    check_count("repeat", times);
    const int64_t rows = dataset->rows();
    int64_t all = 0;
    if (__builtin_mul_overflow(rows, times, &all))
      throw DataError(fmt::format("repeat: {} rows {} times are more than 64 bits count", rows, times));
    return std::make_shared<RepeatedRows>(std::move(dataset), rows, all);
  });
}

DatasetPtr filter(DatasetPtr dataset, const std::function<bool(const std::vector<Tensor>&)>& keep,
                  std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "filter");
    if (!keep) throw DataError("filter: there is no function");
    std::vector<int64_t> kept;
    for (int64_t row = 0; row < dataset->rows(); ++row) {
      const std::span<const int64_t> one(&row, 1);
      std::vector<Tensor> values = room_for_rows(*dataset, 1, dataset->open_sizes(one));
      checked_read(*dataset, one, values);
      for (Tensor& value : values) {
        Shape shape = value.shape();
        value = value.reshape(std::vector<int64_t>(shape.begin() + 1, shape.end()));
      }
      if (keep(values)) kept.push_back(row);
    }
    return std::make_shared<SelectedRows>(std::move(dataset), std::move(kept));
  });
}

}  // namespace espalier::data
