#include "espalier/data/views/mix.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "espalier/core/error.h"
#include "espalier/data/draws.h"
#include "espalier/data/views/checked_read.h"

namespace espalier::data {

namespace {

using transforms::Draws;

/// The logarithm of a number of the gamma distribution. Marsaglia and Tsang, A simple method for generating
/// gamma variables, 2000; below 1, by a number of shape + 1.
double log_gamma_number(double shape, Draws& draws) {
  if (shape < 1) {
    const double lift = std::log(1 - draws.uniform()) / shape;
    return log_gamma_number(shape + 1, draws) + lift;
  }
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = draws.normal(), v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(1 - draws.uniform()) < x * x / 2 + d - d * v + d * std::log(v))
      return std::log(d * v);
  }
}

/// From the beta distribution of (alpha, alpha).
double beta_number(double alpha, Draws& draws) {
  const double a = log_gamma_number(alpha, draws), b = log_gamma_number(alpha, draws);
  return 1 / (1 + std::exp(b - a));
}

class MixedRows : public Dataset {
 public:
  MixedRows(DatasetPtr source, const MixOptions& options, const char* call)
      : source_(std::move(source)), options_(options), call_(call), specs_(source_->specs()) {
    if (!(options.alpha > 0) || !std::isfinite(options.alpha))
      throw DataError(fmt::format("{}: alpha is {}, which is not above 0", call, options.alpha));
    if (!(options.probability >= 0 && options.probability <= 1))
      throw DataError(fmt::format("{}: the probability is {}, not from 0 to 1", call, options.probability));
    if (options.classes < 1)
      throw DataError(
          fmt::format("{}: .classes is {}; it is the number of the labels' classes", call, options.classes));
    if (open_axes_of(specs_) > 0)
      throw DataError(fmt::format("{}: sizes of the dataset are open (-1)", call));
    if (source_->rows() < 1) throw DataError(fmt::format("{}: the dataset has no rows", call));
    if (specs_.size() != 2)
      throw DataError(
          fmt::format("{}: the dataset has {} columns, not images and labels", call, specs_.size()));
    const Spec& labels = specs_[1];
    shares_ = labels.dtype == float32 && labels.shape == Shape{source_->rows(), options.classes};
    const bool numbers =
        (labels.dtype == int32 || labels.dtype == int64) && labels.shape == Shape{source_->rows()};
    if (!shares_ && !numbers)
      throw DataError(fmt::format("{}: labels are {} {}, neither integers [rows] nor float32 [rows, {}]",
                                  call, name(labels.dtype), labels.shape.str(), options.classes));
    specs_[1] = {float32, {source_->rows(), options.classes}};
  }

  int64_t rows() const override { return source_->rows(); }
  std::vector<Spec> specs() const override { return specs_; }
  void read(std::span<const int64_t> rows, std::span<Tensor> outputs) const override {
    read_in({}, rows, outputs);
  }
  void read_in(const ReadContext& context, std::span<const int64_t> rows,
               std::span<Tensor> outputs) const override {
    check_rows(rows, this->rows());
    if (rows.empty()) return;
    std::vector<Draws> draws;
    std::vector<int64_t> others;
    for (const int64_t row : rows) {
      Draws& numbers = draws.emplace_back(context.random(row));
      const bool mixes = numbers.chance(options_.probability);
      others.push_back(mixes ? numbers.integer(0, this->rows() - 1) : -1);
    }
    std::vector<int64_t> needed;
    std::ranges::copy_if(others, std::back_inserter(needed), [](int64_t row) { return row >= 0; });
    // Below here, others draw: the same numbers would make two augmentations one.
    const auto count = [](const std::vector<int64_t>& list) { return static_cast<int64_t>(list.size()); };
    std::vector<Tensor> own{outputs[0], room_for_rows(*source_, static_cast<int64_t>(rows.size()))[1]};
    std::vector<Tensor> other = room_for_rows(*source_, count(needed));
    checked_read(*source_, {context.epoch, derived_seed(context.seed, 1)}, rows, own);
    if (!needed.empty())
      checked_read(*source_, {context.epoch, derived_seed(context.seed, 2)}, needed, other);
    int64_t at = 0;
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      float* shares = outputs[1].data<float>() + row * options_.classes;
      std::fill_n(shares, options_.classes, 0.0f);
      const double share = others[i] < 0 ? 1 : mix(outputs[0], row, other[0], at, draws[i]);
      add_shares(own[1], row, rows[i], share, shares);
      if (others[i] >= 0) add_shares(other[1], at++, others[i], 1 - share, shares);
    }
  }

 protected:
  /// Mixes row `at` of `others` into row `row` of `images` and returns the share that is left of it.
  virtual double mix(Tensor& images, int64_t row, const Tensor& others, int64_t at, Draws& draws) const = 0;
  const Spec& images() const { return specs_[0]; }
  double alpha() const { return options_.alpha; }

 private:
  void add_shares(const Tensor& labels, int64_t at, int64_t row, double share, float* to) const {
    const auto weight = static_cast<float>(share);
    if (shares_) {
      const float* from = labels.data<float>() + at * options_.classes;
      for (int64_t k = 0; k < options_.classes; ++k) to[k] += weight * from[k];
      return;
    }
    const int64_t label = labels.dtype() == int32 ? labels.data<int32_t>()[at] : labels.data<int64_t>()[at];
    if (label < 0 || label >= options_.classes)
      throw IndexError(fmt::format("{}: the label of row {} is {}, which is none of {} classes", call_, row,
                                   label, options_.classes));
    to[label] += weight;
  }

  DatasetPtr source_;
  MixOptions options_;
  const char* call_;
  std::vector<Spec> specs_;
  bool shares_ = false;  // labels of the source are such
};

class MixedUpRows : public MixedRows {
 public:
  MixedUpRows(DatasetPtr source, const MixOptions& options) : MixedRows(std::move(source), options, "mixup") {
    if (images().dtype != float32)
      throw TypeError(fmt::format("mixup: images are {}, not float32", name(images().dtype)));
  }

 private:
  double mix(Tensor& images, int64_t row, const Tensor& others, int64_t at, Draws& draws) const override {
    const double share = beta_number(alpha(), draws);
    const auto left = static_cast<float>(share);
    const int64_t count = images.elements() / images.shape()[0];
    float* to = images.data<float>() + row * count;
    const float* from = others.data<float>() + at * count;
    for (int64_t i = 0; i < count; ++i) to[i] = left * to[i] + (1 - left) * from[i];
    return share;
  }
};

class CutMixedRows : public MixedRows {
 public:
  CutMixedRows(DatasetPtr source, const MixOptions& options)
      : MixedRows(std::move(source), options, "cutmix") {
    if (images().shape.rank() != 4)
      throw DataError(
          fmt::format("cutmix: images are {}, not [rows, channels, height, width]", images().shape.str()));
  }

 private:
  double mix(Tensor& images, int64_t row, const Tensor& others, int64_t at, Draws& draws) const override {
    const int64_t channels = images.shape()[1], height = images.shape()[2], width = images.shape()[3];
    const double side = std::sqrt(1 - beta_number(alpha(), draws));
    const auto part = [&](int64_t size) {
      const auto length = static_cast<int64_t>(side * static_cast<double>(size));
      const int64_t begin = draws.integer(0, size - 1) - length / 2;
      return std::pair{std::max<int64_t>(0, begin), std::min(size, begin + length)};
    };
    const auto [top, bottom] = part(height);
    const auto [left, right] = part(width);
    const int64_t bytes = static_cast<int64_t>(size_of(images.dtype())), plane = height * width;
    char* to = static_cast<char*>(images.address()) + row * channels * plane * bytes;
    const char* from = static_cast<const char*>(others.address()) + at * channels * plane * bytes;
    for (int64_t channel = 0; channel < channels; ++channel)
      for (int64_t y = top; y < bottom; ++y) {
        const int64_t begin = (channel * plane + y * width + left) * bytes;
        std::memcpy(to + begin, from + begin, static_cast<size_t>((right - left) * bytes));
      }
    return 1 - static_cast<double>((bottom - top) * (right - left)) / static_cast<double>(plane);
  }
};

}  // namespace

DatasetPtr mixup(DatasetPtr dataset, const MixOptions& options, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "mixup");
    return std::make_shared<MixedUpRows>(std::move(dataset), options);
  });
}

DatasetPtr cutmix(DatasetPtr dataset, const MixOptions& options, std::source_location where) {
  return located(where, [&]() -> DatasetPtr {
    check_source(dataset, "cutmix");
    return std::make_shared<CutMixedRows>(std::move(dataset), options);
  });
}

}  // namespace espalier::data
