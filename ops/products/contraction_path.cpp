// The order in which the operands of a contraction are multiplied.
#include <algorithm>
#include <limits>

#include "espalier/ops/products/contract.h"

namespace espalier {

namespace {

constexpr size_t most_searched = 8;  // operands: 3^8 pairs of sets

/// Labels as sets, with a flag for each.
using LabelSet = std::vector<bool>;

class PathSearch {
 public:
  PathSearch(const std::vector<AxisLabels>& operands, const AxisLabels& output,
             const std::vector<int64_t>& sizes)
      : sizes_(sizes), output_(set_of(output)) {
    for (const AxisLabels& labels : operands) operands_.push_back(set_of(labels));
  }

  std::vector<ContractionStep> best() {
    const size_t n = operands_.size(), all = (size_t{1} << n) - 1;
    kept_.resize(all + 1);
    split_.assign(all + 1, 0);
    std::vector<double> cost(all + 1, 0);
    for (size_t set = 1; set <= all; ++set) {
      kept_[set] = kept(set);
      if ((set & (set - 1)) == 0) continue;
      cost[set] = std::numeric_limits<double>::infinity();
      for (size_t part = (set - 1) & set; part > set - part; part = (part - 1) & set) {
        const size_t rest = set - part;
        const double now = cost[part] + cost[rest] + size_of_both(kept_[part], kept_[rest]);
        if (now < cost[set]) {
          cost[set] = now;
          split_[set] = part;
        }
      }
    }
    walk(all);
    return std::move(steps_);
  }

  std::vector<ContractionStep> greedy() {
    std::vector<std::pair<size_t, LabelSet>> left;
    for (size_t k = 0; k < operands_.size(); ++k) left.emplace_back(k, operands_[k]);
    while (left.size() > 1) {
      size_t first = 0, second = 1;
      double best = std::numeric_limits<double>::infinity();
      for (size_t a = 0; a < left.size(); ++a)
        for (size_t b = a + 1; b < left.size(); ++b) {
          const double now =
              product(result_of(left, a, b)) - product(left[a].second) - product(left[b].second);
          if (now < best) best = now, first = a, second = b;
        }
      LabelSet result = result_of(left, first, second);
      steps_.push_back({left[first].first, left[second].first});
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(second));
      left[first] = {operands_.size() + steps_.size() - 1, std::move(result)};
    }
    return std::move(steps_);
  }

 private:
  LabelSet set_of(const AxisLabels& labels) const {
    LabelSet set(sizes_.size());
    for (const int label : labels) set[static_cast<size_t>(label)] = true;
    return set;
  }
  double product(const LabelSet& labels) const {
    double size = 1;
    for (size_t label = 0; label < labels.size(); ++label)
      if (labels[label]) size *= static_cast<double>(sizes_[label]);
    return size;
  }
  double size_of_both(const LabelSet& a, const LabelSet& b) const {
    LabelSet both = a;
    for (size_t label = 0; label < b.size(); ++label) both[label] = both[label] || b[label];
    return product(both);
  }
  /// The labels of a set of operands that the output or other operands have, too.
  LabelSet kept(size_t set) const {
    LabelSet inside(sizes_.size()), outside = output_;
    for (size_t k = 0; k < operands_.size(); ++k) {
      LabelSet& side = (set >> k) & 1 ? inside : outside;
      for (size_t label = 0; label < side.size(); ++label) side[label] = side[label] || operands_[k][label];
    }
    for (size_t label = 0; label < inside.size(); ++label) inside[label] = inside[label] && outside[label];
    return inside;
  }
  LabelSet result_of(const std::vector<std::pair<size_t, LabelSet>>& left, size_t a, size_t b) const {
    LabelSet result(sizes_.size()), outside = output_;
    for (size_t k = 0; k < left.size(); ++k) {
      LabelSet& side = k == a || k == b ? result : outside;
      for (size_t label = 0; label < side.size(); ++label) side[label] = side[label] || left[k].second[label];
    }
    for (size_t label = 0; label < result.size(); ++label) result[label] = result[label] && outside[label];
    return result;
  }
  /// Adds the steps of a set; returns the number of its result.
  size_t walk(size_t set) {
    if ((set & (set - 1)) == 0) {
      size_t k = 0;
      while (!((set >> k) & 1)) ++k;
      return k;
    }
    size_t first = walk(split_[set]), second = walk(set - split_[set]);
    if (first > second && second < operands_.size()) std::swap(first, second);
    steps_.push_back({first, second});
    return operands_.size() + steps_.size() - 1;
  }

  const std::vector<int64_t>& sizes_;
  LabelSet output_;
  std::vector<LabelSet> operands_, kept_;
  std::vector<size_t> split_;
  std::vector<ContractionStep> steps_;
};

}  // namespace

std::vector<ContractionStep> contraction_path(const std::vector<AxisLabels>& operands,
                                              const AxisLabels& output, const std::vector<int64_t>& sizes) {
  PathSearch search(operands, output, sizes);
  return operands.size() <= most_searched ? search.best() : search.greedy();
}

}  // namespace espalier
