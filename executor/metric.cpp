#include "espalier/executor/metric.h"

#include <fmt/format.h>

#include "espalier/core/error.h"

namespace espalier {

Metric::Metric(std::vector<Variable> means, Finish finish, Where where)
    : means_(std::move(means)), finish_(std::move(finish)) {
  located(where, [&] {
    if (means_.empty() || !finish_) throw Error("Metric: it needs means, and a function of them");
    for (const Variable& mean : means_) {
      if (!mean.defined()) throw Error("Metric: a mean is an undefined Variable");
      if (mean.rank() != 0)
        throw ShapeError(fmt::format("Metric: a mean is a scalar, not of shape {}", mean.shape().str()));
      if (!is_real(mean.dtype()))
        throw TypeError(fmt::format("Metric: a mean is real, not of type {}", name(mean.dtype())));
    }
  });
}

double Metric::value(Where where) const {
  std::vector<double> values;
  for (const Variable& mean : means_) values.push_back(mean.item(where));
  return finish_(values);
}

void MetricAccumulator::add(const Metric& batch, int64_t samples, std::source_location where) {
  located(where, [&] {
    if (samples < 1) throw Error(fmt::format("MetricAccumulator: a batch cannot have {} samples", samples));
    if (samples_ > 0 && sums_.size() != batch.means().size())
      throw Error(fmt::format("MetricAccumulator: a metric of {} means cannot be added to one of {}",
                              batch.means().size(), sums_.size()));
    std::vector<double> sums = sums_;
    sums.resize(batch.means().size());
    for (size_t i = 0; i < sums.size(); ++i)
      sums[i] += batch.means()[i].item(where) * static_cast<double>(samples);
    sums_ = std::move(sums);
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

}  // namespace espalier
