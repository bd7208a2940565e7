// The rows of each step of a recurrence.
#pragma once
#include <algorithm>
#include <cstdint>
#include <vector>

#include "espalier/core/shape.h"

namespace espalier {

/// Row b of step k is row begin(k) + b of all; steps are counted in the order in which they run.
class StepRows {
 public:
  /// Of `steps` steps with `batch` rows each.
  StepRows(int64_t steps, int64_t batch, bool reverse)
      : counts_(static_cast<size_t>(steps), batch), reverse_(reverse) {
    place();
  }
  /// Of packed sequences.
  StepRows(const Dims& batch_sizes, bool reverse)
      : counts_(batch_sizes.begin(), batch_sizes.end()), reverse_(reverse) {
    place();
  }

  int64_t steps() const { return static_cast<int64_t>(counts_.size()); }
  int64_t rows(int64_t k) const { return counts_[at(k)]; }
  int64_t begin(int64_t k) const { return begins_[at(k)]; }
  /// The step's number in the order of the rows.
  int64_t position(int64_t k) const { return reverse_ ? steps() - 1 - k : k; }
  /// Rows of step k that step k − 1 has as well. The others begin with the initial state.
  int64_t continued(int64_t k) const { return k == 0 ? 0 : std::min(rows(k), rows(k - 1)); }
  /// The numbers of rows that occur, the largest first.
  std::vector<int64_t> sizes() const {
    std::vector<int64_t> all = counts_;
    std::sort(all.rbegin(), all.rend());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

 private:
  void place() {
    begins_.reserve(counts_.size());
    int64_t begin = 0;
    for (const int64_t count : counts_) begins_.push_back(begin), begin += count;
  }
  size_t at(int64_t k) const { return static_cast<size_t>(position(k)); }

  std::vector<int64_t> counts_, begins_;
  bool reverse_;
};

}  // namespace espalier
