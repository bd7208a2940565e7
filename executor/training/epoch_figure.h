// EpochFigure: an output that each epoch of the History has a number of.
#pragma once
#include <span>
#include <string>
#include <vector>

#include "espalier/executor/metric.h"
#include "espalier/executor/metric_functions.h"

namespace espalier {

/// A step has some numbers of it, which are averaged over samples: one of a scalar, all of the means of a
/// Metric.
struct EpochFigure {
  std::string name;
  size_t numbers = 1;
  Metric::Finish finish = {};  ///< empty: the mean itself
  internal::AlignMeans align = {};

  double of(std::span<const double> means) const { return finish ? finish(means) : means[0]; }
};

inline size_t count_numbers(const std::vector<EpochFigure>& figures) {
  size_t count = 0;
  for (const EpochFigure& figure : figures) count += figure.numbers;
  return count;
}
/// Adds the numbers of a step of so many samples to sums over `before` samples.
inline void add_step(const std::vector<EpochFigure>& figures, std::span<double> sums, double before,
                     std::span<const double> numbers, double samples) {
  for (const EpochFigure& figure : figures) {
    internal::add_weighted(sums.first(figure.numbers), before, numbers.first(figure.numbers), samples,
                           figure.align);
    sums = sums.subspan(figure.numbers);
    numbers = numbers.subspan(figure.numbers);
  }
}
inline std::vector<std::string> names_of(const std::vector<EpochFigure>& figures) {
  std::vector<std::string> names;
  for (const EpochFigure& figure : figures) names.push_back(figure.name);
  return names;
}

}  // namespace espalier
