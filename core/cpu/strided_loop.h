// Walks K tensors of one shape together, whatever their strides, in rows as long as the strides allow.
#pragma once
#include <array>
#include <cstdint>

#include "espalier/core/shape.h"

namespace espalier {

template <size_t K>
class StridedLoop {
 public:
  using Offsets = std::array<int64_t, K>;

  /// Axes of size 1 are dropped, and neighbours which every operand walks as one axis are joined.
  StridedLoop(const Shape& shape, const std::array<const Dims*, K>& strides) {
    for (size_t i = 0; i < shape.rank(); ++i) {
      const int64_t size = shape.dims()[i];
      empty_ |= size == 0;
      if (size == 1) continue;
      Offsets step;
      for (size_t k = 0; k < K; ++k) step[k] = (*strides[k])[i];
      if (!sizes_.empty() && joins(steps_.back(), step, size)) {
        sizes_.back() *= size;
        steps_.back() = step;
      } else {
        sizes_.push_back(size);
        steps_.push_back(step);
      }
    }
    if (sizes_.empty()) {
      sizes_.push_back(1);
      Offsets step{};
      step.fill(1);
      steps_.push_back(step);
    }
  }

  bool empty() const { return empty_; }
  int64_t row() const { return sizes_.back(); }
  int64_t rows() const {
    int64_t rows = empty_ ? 0 : 1;
    for (size_t i = 0; i + 1 < sizes_.size(); ++i) rows *= sizes_[i];
    return rows;
  }
  const Offsets& row_step() const { return steps_.back(); }
  /// What is left of the axes, from the outermost on.
  size_t axes() const { return sizes_.size(); }
  int64_t size(size_t axis) const { return sizes_[axis]; }
  const Offsets& step(size_t axis) const { return steps_[axis]; }

  /// Calls `f(length, offsets, steps)` for rows `begin` to `end`.
  template <class F>
  void run_rows(int64_t begin, int64_t end, F&& f) const {
    walk<1>(begin, end, [&](const Offsets& at) { f(sizes_.back(), at, steps_.back()); });
  }
  template <class F>
  void run(F&& f) const {
    run_rows(0, rows(), f);
  }

  /// The matrices of the last two axes, where there are two, and a call of `f(offsets)` for one of them.
  int64_t matrices() const { return rows() / sizes_[sizes_.size() - 2]; }
  template <class F>
  void run_matrix(int64_t matrix, F&& f) const {
    walk<2>(matrix, matrix + 1, f);
  }

 private:
  /// Calls `f(offsets)` for entries `begin` to `end` of all axes but the last `inner` ones.
  template <size_t inner, class F>
  void walk(int64_t begin, int64_t end, F&& f) const {
    if (empty_ || begin >= end) return;
    const size_t outer = sizes_.size() - inner;
    Dims index(outer, 0);
    Offsets at{};
    int64_t rest = begin;
    for (size_t i = outer; i-- > 0;) {
      index[i] = rest % sizes_[i];
      rest /= sizes_[i];
      for (size_t k = 0; k < K; ++k) at[k] += index[i] * steps_[i][k];
    }
    for (int64_t r = begin; r < end; ++r) {
      f(at);
      for (size_t i = outer; i-- > 0;) {
        for (size_t k = 0; k < K; ++k) at[k] += steps_[i][k];
        if (++index[i] < sizes_[i]) break;
        for (size_t k = 0; k < K; ++k) at[k] -= sizes_[i] * steps_[i][k];
        index[i] = 0;
      }
    }
  }

  static bool joins(const Offsets& outer, const Offsets& inner, int64_t size) {
    for (size_t k = 0; k < K; ++k)
      if (outer[k] != inner[k] * size) return false;
    return true;
  }

  Dims sizes_;
  SmallVector<Offsets, 4> steps_;
  bool empty_ = false;
};

}  // namespace espalier
