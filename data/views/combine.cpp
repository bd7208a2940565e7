#include "espalier/data/views/combine.h"

#include <fmt/format.h>

#include <algorithm>

#include "espalier/core/error.h"
#include "espalier/data/views/checked_read.h"

namespace espalier::data {

namespace {

class ConcatenatedRows : public Dataset {
 public:
  explicit ConcatenatedRows(std::vector<DatasetPtr> sources) : sources_(std::move(sources)) {
    const std::vector<Spec> first = sources_[0]->specs();
    for (size_t i = 0; i < sources_.size(); ++i) {
      std::vector<Spec> specs = sources_[i]->specs();
      bool same = specs.size() == first.size();
      for (size_t column = 0; same && column < specs.size(); ++column) {
        if (specs[column].shape.rank() > 0) specs[column].shape.dims()[0] = first[column].shape.dims()[0];
        same = specs[column] == first[column];
        if (!same)
          throw DataError(fmt::format("concat: column {} is {} {} in dataset 0 and {} {} in dataset {}",
                                      column, name(first[column].dtype), first[column].shape.str(),
                                      name(specs[column].dtype), sources_[i]->specs()[column].shape.str(),
                                      i));
      }
      if (!same)
        throw DataError(fmt::format("concat: dataset 0 has {} columns and dataset {} has {}", first.size(), i,
                                    specs.size()));
      begins_.push_back(rows_);
      rows_ += sources_[i]->rows();
    }
  }

  int64_t rows() const override { return rows_; }
  std::vector<Spec> specs() const override {
    std::vector<Spec> specs = sources_[0]->specs();
    for (Spec& spec : specs) spec.shape.dims()[0] = rows_;
    return specs;
  }
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    read_in({}, rows, outputs);
  }
  void read_in(const ReadContext& context, std::span<const int64_t> rows,
               std::span<Tensor> outputs) const override {
    for_parts(rows, [&](size_t source, std::span<const int64_t> own, std::span<const int64_t> positions) {
      // Rows of two sources draw different numbers.
      const ReadContext of_source{context.epoch, derived_seed(context.seed, source)};
      read_at(positions, outputs,
              [&](std::span<Tensor> to) { checked_read(*sources_[source], of_source, own, to); });
    });
  }
  std::vector<int64_t> open_sizes(std::span<const int64_t> rows) const override {
    std::vector<int64_t> largest(static_cast<size_t>(open_axes_of(sources_[0]->specs())), 0);
    if (largest.empty()) return {};
    for_parts(rows, [&](size_t source, std::span<const int64_t> own, std::span<const int64_t>) {
      const std::vector<int64_t> sizes = sources_[source]->open_sizes(own);
      for (size_t i = 0; i < std::min(sizes.size(), largest.size()); ++i)
        largest[i] = std::max(largest[i], sizes[i]);
    });
    return largest;
  }

 private:
  template <class F>
  void for_parts(std::span<const int64_t> rows, const F& f) const {
    check_rows(rows, rows_);
    std::vector<std::vector<int64_t>> own(sources_.size()), positions(sources_.size());
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto after = std::ranges::upper_bound(begins_, rows[i]);
      const auto source = static_cast<size_t>(after - begins_.begin() - 1);
      own[source].push_back(rows[i] - begins_[source]);
      positions[source].push_back(static_cast<int64_t>(i));
    }
    for (size_t source = 0; source < sources_.size(); ++source)
      if (!own[source].empty()) f(source, own[source], positions[source]);
  }

  std::vector<DatasetPtr> sources_;
  std::vector<int64_t> begins_;
  int64_t rows_ = 0;
};

class ZippedColumns : public Dataset {
 public:
  explicit ZippedColumns(std::vector<DatasetPtr> sources) : sources_(std::move(sources)) {
    for (size_t i = 1; i < sources_.size(); ++i)
      if (sources_[i]->rows() != sources_[0]->rows())
        throw DataError(fmt::format("zip: dataset 0 has {} rows and dataset {} has {}", sources_[0]->rows(),
                                    i, sources_[i]->rows()));
  }

  int64_t rows() const override { return sources_[0]->rows(); }
  std::vector<Spec> specs() const override {
    std::vector<Spec> all;
    for (const DatasetPtr& source : sources_)
      for (Spec& spec : source->specs()) all.push_back(std::move(spec));
    return all;
  }
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    read_in({}, rows, outputs);
  }
  void read_in(const ReadContext& context, std::span<const int64_t> rows,
               std::span<Tensor> outputs) const override {
    size_t first = 0;
    for (const DatasetPtr& source : sources_) {
      const size_t columns = source->specs().size();
      checked_read(*source, context, rows, outputs.subspan(first, columns));
      first += columns;
    }
  }
  std::vector<int64_t> open_sizes(std::span<const int64_t> rows) const override {
    std::vector<int64_t> all;
    for (const DatasetPtr& source : sources_)
      std::ranges::copy(source->open_sizes(rows), std::back_inserter(all));
    return all;
  }
  /// If all are tensors in memory.
  std::vector<Tensor> columns() const override {
    std::vector<Tensor> all;
    for (const DatasetPtr& source : sources_) {
      const std::vector<Tensor> own = source->columns();
      if (own.empty()) return {};
      all.insert(all.end(), own.begin(), own.end());
    }
    return all;
  }

 private:
  std::vector<DatasetPtr> sources_;
};

class GroupedRows : public Dataset {
 public:
  GroupedRows(DatasetPtr source, int64_t size) : source_(std::move(source)), size_(size) {}

  int64_t rows() const override { return source_->rows() / size_; }
  std::vector<Spec> specs() const override {
    std::vector<Spec> specs = source_->specs();
    for (Spec& spec : specs) {
      std::vector<int64_t> sizes{rows(), size_};
      sizes.insert(sizes.end(), spec.shape.begin() + 1, spec.shape.end());
      spec.shape = sizes;
    }
    return specs;
  }
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    read_in({}, rows, outputs);
  }
  void read_in(const ReadContext& context, std::span<const int64_t> rows,
               std::span<Tensor> outputs) const override {
    const std::vector<int64_t> all = ungrouped(rows);
    std::vector<Tensor> flat;
    for (const Tensor& output : outputs) {
      std::vector<int64_t> sizes{static_cast<int64_t>(all.size())};
      sizes.insert(sizes.end(), output.shape().begin() + 2, output.shape().end());
      flat.push_back(output.reshape(sizes));
    }
    checked_read(*source_, context, all, flat);
  }
  std::vector<int64_t> open_sizes(std::span<const int64_t> rows) const override {
    return source_->open_sizes(ungrouped(rows));
  }

 private:
  std::vector<int64_t> ungrouped(std::span<const int64_t> rows) const {
    check_rows(rows, this->rows());
    std::vector<int64_t> all;
    for (const int64_t row : rows)
      for (int64_t i = 0; i < size_; ++i) all.push_back(row * size_ + i);
    return all;
  }

  DatasetPtr source_;
  int64_t size_;
};

void check_sources(const std::vector<DatasetPtr>& datasets, const char* call) {
  if (datasets.empty()) throw DataError(fmt::format("{}: there are no datasets", call));
  for (const DatasetPtr& dataset : datasets) check_source(dataset, call);
}

}  // namespace

DatasetPtr concat(std::vector<DatasetPtr> datasets, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_sources(datasets, "concat");
    return std::make_shared<ConcatenatedRows>(std::move(datasets));
  });
}

DatasetPtr zip(std::vector<DatasetPtr> datasets, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_sources(datasets, "zip");
    return std::make_shared<ZippedColumns>(std::move(datasets));
  });
}

DatasetPtr batch(DatasetPtr dataset, int64_t size, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "batch");
    if (size < 1) throw DataError(fmt::format("batch: {} rows are none", size));
    return std::make_shared<GroupedRows>(std::move(dataset), size);
  });
}

}  // namespace espalier::data
