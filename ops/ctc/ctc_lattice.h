// The forward and backward recursions of CTC over the alignments of one row, on the CPU.
#pragma once
#include <algorithm>
#include <vector>

#include "espalier/core/cpu/vectorize.h"
#include "espalier/ops/ctc/ctc_number.h"

namespace espalier::ctc {

/// The states of a row: its labels with a blank before, between and behind them.
struct States {
  std::vector<int64_t> classes;
  /// Of each state, and two behind the last: 0 if the state may follow the second before it, else −∞. Blanks
  /// between equal labels cannot be left out.
  std::vector<double> skip;

  int64_t count() const { return static_cast<int64_t>(classes.size()); }

  template <class Label>
  void assign(int64_t labels, int64_t blank, Label&& label) {
    classes.assign(static_cast<size_t>(2 * labels + 1), blank);
    skip.assign(classes.size() + 2, nothing<double>());
    for (int64_t i = 0; i < labels; ++i) {
      const size_t s = static_cast<size_t>(2 * i + 1);
      classes[s] = label(i);
      if (i > 0 && classes[s] != classes[s - 2]) skip[s] = 0;
    }
  }
};

template <class N>
class Lattice {
 public:
  /// log of the probability of all alignments. `emission(step, class)` is log of a probability. Writes the
  /// sums over the beginnings that are in a state at a step to alphas[step · stride + state].
  template <class Emission>
  N forward(const States& states, int64_t steps, const Emission& emission, N* alphas, int64_t stride) {
    const int64_t n = states.count();
    if (steps == 0) return n == 1 ? certain<N>() : nothing<N>();
    emissions_.resize(states.classes.size());
    row_.assign(states.classes.size() + 2, nothing<N>());
    row_[2] = certain<N>();  // before the first step: the state before the first
    const double* skip = states.skip.data();
    for (int64_t t = 0; t < steps; ++t) {
      emit(states, t, emission);
      N* out = alphas + t * stride;
      const N *before = row_.data(), *e = emissions_.data();
      if (t == 0) {
        std::fill_n(out, n, nothing<N>());
        for (int64_t s = 0; s < std::min<int64_t>(n, 2); ++s) out[s] = e[s];
      } else {
        vectorized([=]() __attribute__((always_inline)) {
          for (int64_t s = 0; s < n; ++s)
            out[s] = times(e[s], sum_of(before[s + 2], before[s + 1], before[s], skip[s]));
        });
      }
      std::copy_n(out, n, row_.begin() + 2);
    }
    return sum_of(row_[static_cast<size_t>(n) + 1], n > 1 ? row_[static_cast<size_t>(n)] : nothing<N>(),
                  nothing<N>(), 0);
  }

  /// Calls `f(step, shares)` from the last step on, where shares[state] is the part of all alignments that is
  /// in that state at that step; of Duals its derivative.
  template <class Emission, class F>
  void backward(const States& states, int64_t steps, const Emission& emission, const N* alphas,
                int64_t stride, N total, F&& f) {
    const int64_t n = states.count();
    shares_.resize(states.classes.size());
    emissions_.resize(states.classes.size());
    row_.assign(states.classes.size() + 2, nothing<N>());
    behind_.assign(states.classes.size(), nothing<N>());
    for (int64_t s = std::max<int64_t>(0, n - 2); s < n; ++s) behind_[static_cast<size_t>(s)] = certain<N>();
    for (int64_t t = steps - 1; t >= 0; --t) {
      const N *alpha = alphas + t * stride, *e = emissions_.data();
      N *behind = behind_.data(), *row = row_.data();
      double* part = shares_.data();
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t s = 0; s < n; ++s) part[s] = share(times(alpha[s], behind[s]), total);
      });
      f(t, const_cast<const double*>(part));
      if (t == 0) break;
      emit(states, t, emission);
      const double* skip = states.skip.data();
      for (int64_t s = 0; s < n; ++s) row[s] = times(behind[s], e[s]);
      vectorized([=]() __attribute__((always_inline)) {
        for (int64_t s = 0; s < n; ++s) behind[s] = sum_of(row[s], row[s + 1], row[s + 2], skip[s + 2]);
      });
    }
  }

 private:
  template <class Emission>
  void emit(const States& states, int64_t t, const Emission& emission) {
    for (size_t s = 0; s < emissions_.size(); ++s) emissions_[s] = emission(t, states.classes[s]);
  }

  std::vector<N> emissions_, row_, behind_;
  std::vector<double> shares_;
};

}  // namespace espalier::ctc
