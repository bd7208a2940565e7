#include "espalier/executor/metric.h"

#include <fmt/format.h>

#include "espalier/core/error.h"
#include "espalier/core/open_sizes.h"
#include "espalier/executor/metric_functions.h"
#include "espalier/ops/ops.h"

namespace espalier {

Metric::Metric(std::vector<Variable> means, Finish finish, Where where)
    : means_(std::move(means)), finish_(std::move(finish)) {
  located(where, [&] {
    if (means_.empty() || !finish_) throw Error("Metric: it needs means, and a function of them");
    for (const Variable& mean : means_) {
      if (!mean.defined()) throw Error("Metric: a mean is an undefined Variable");
      for (size_t axis = 0; axis < mean.rank(); ++axis)
        if (is_open_axis(mean, static_cast<int64_t>(axis)))
          throw ShapeError(
              fmt::format("Metric: axis {} of the shape {} is as long as the batch; take the mean over it",
                          axis, mean.shape().str()));
      if (!is_real(mean.dtype()))
        throw TypeError(fmt::format("Metric: a mean is real, not of type {}", name(mean.dtype())));
    }
  });
}

void internal::append_elements(const Tensor& value, std::vector<double>& list) {
  const Tensor wide = value.to(cpu()).to(float64).contiguous_copy();
  const auto elements = wide.span<double>();
  list.insert(list.end(), elements.begin(), elements.end());
}

namespace {

std::vector<double> numbers_of(const Metric& metric, const std::source_location& where) {
  std::vector<double> numbers;
  for (const Variable& mean : metric.means()) internal::append_elements(mean.value(where), numbers);
  return numbers;
}

}  // namespace

double Metric::value(Where where) const { return finish_(numbers_of(*this, where)); }

void MetricAccumulator::add(const Metric& batch, int64_t samples, std::source_location where) {
  located(where, [&] {
    if (samples < 1) throw Error(fmt::format("MetricAccumulator: a batch cannot have {} samples", samples));
    std::vector<double> numbers = numbers_of(batch, where);
    if (samples_ > 0 && sums_.size() != numbers.size())
      throw Error(fmt::format("MetricAccumulator: a metric of {} means cannot be added to one of {}",
                              numbers.size(), sums_.size()));
    sums_.resize(numbers.size());
    internal::add_weighted(sums_, static_cast<double>(samples_), numbers, static_cast<double>(samples),
                           internal::alignment_of(batch.finish()));
    finish_ = batch.finish();
    samples_ += samples;
  });
}

double MetricAccumulator::value(std::source_location where) const {
  return located(where, [&] {
    if (samples_ == 0) throw Error("MetricAccumulator: no batch has been added");
    std::vector<double> means = sums_;
    for (double& mean : means) mean /= static_cast<double>(samples_);
    return finish_(means);
  });
}

void MetricAccumulator::reset() { *this = {}; }

void internal::add_weighted(std::span<double> sums, double before, std::span<const double> numbers,
                            double samples, const AlignMeans& align) {
  std::vector<double> aligned;
  if (align && before > 0) {
    std::vector<double> means(sums.begin(), sums.end());
    for (double& mean : means) mean /= before;
    aligned.assign(numbers.begin(), numbers.end());
    align(aligned, means);
    numbers = aligned;
  }
  for (size_t i = 0; i < sums.size(); ++i) sums[i] += numbers[i] * samples;
}

}  // namespace espalier
