#include "espalier/executor/kit/auc.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "espalier/core/error.h"

namespace espalier {

void Auc::add(const Tensor& scores, const Tensor& labels, Where where) {
  located(where, [&] {
    if (!scores.defined() || !labels.defined()) throw Error("auc: a Tensor is undefined");
    if (!is_real(scores.dtype()))
      throw TypeError(fmt::format("auc: scores are real, not {}", name(scores.dtype())));
    if (scores.elements() != labels.elements())
      throw ShapeError(fmt::format("auc: scores of shape {} and labels of shape {}", scores.shape().str(),
                                   labels.shape().str()));
    const Tensor score = scores.to(cpu()).to(float64).contiguous_copy(),
                 label = labels.to(cpu()).to(float64).contiguous_copy();
    const auto x = score.span<double>(), y = label.span<double>();
    for (size_t i = 0; i < x.size(); ++i) {
      if (std::isnan(x[i])) throw DataError(fmt::format("auc: score {} is NaN", i));
      if (y[i] != 0 && y[i] != 1) throw DataError(fmt::format("auc: label {} is {}, not 0 or 1", i, y[i]));
    }
    scores_.reserve(scores_.size() + x.size());
    for (size_t i = 0; i < x.size(); ++i) scores_.emplace_back(x[i], y[i] == 1);
  });
}

double Auc::value(Where where) const {
  return located(where, [&] {
    auto sorted = scores_;
    std::sort(sorted.begin(), sorted.end());
    double wins = 0, positives = 0, negatives = 0;  // of all smaller scores
    for (size_t i = 0; i < sorted.size();) {
      double here[2] = {0, 0};
      const double score = sorted[i].first;
      for (; i < sorted.size() && sorted[i].first == score; ++i) ++here[sorted[i].second];
      wins += here[1] * (negatives + here[0] / 2);
      negatives += here[0];
      positives += here[1];
    }
    if (positives == 0 || negatives == 0)
      throw DataError(
          fmt::format("auc: it needs positives and negatives; there are {} and {}", positives, negatives));
    return wins / (positives * negatives);
  });
}

double auc(const Tensor& scores, const Tensor& labels, std::source_location where) {
  Auc all;
  all.add(scores, labels, where);
  return all.value(where);
}

}  // namespace espalier
