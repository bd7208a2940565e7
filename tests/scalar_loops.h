// Loops over functors at each vector level, and distances in units of the last place. A test that includes it
// is compiled with optimization before it, as the library's loops are.
#pragma once
#include <boost/test/unit_test.hpp>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <tuple>
#include <vector>

#include "espalier/core/cpu/vectorize.h"

namespace espalier::testing {

inline constexpr VectorLevel all_levels[] = {VectorLevel::baseline, VectorLevel::avx2, VectorLevel::avx512};
inline constexpr const char* level_names[] = {"baseline", "avx2", "avx512"};

struct RestoreLevel {
  VectorLevel before = vector_level();
  ~RestoreLevel() { set_vector_level(before); }
};

/// Calls `check(level)` once for each vector level of this machine.
template <class Check>
void at_every_level(const Check& check) {
  const RestoreLevel restore;
  for (const VectorLevel level : all_levels) {
    if (set_vector_level(level) != level) continue;
    BOOST_TEST_CONTEXT("vector level " << level_names[static_cast<int>(level)]) check();
  }
}

template <class Out, class F, class... In>
std::vector<Out> apply(F f, const std::vector<In>&... in) {
  const auto n = static_cast<int64_t>(std::get<0>(std::tie(in...)).size());
  std::vector<Out> result(static_cast<size_t>(n));
  const auto loop = [f, n, out = result.data()](const In*... a) {
    vectorized([=]() __attribute__((always_inline)) {
      for (int64_t i = 0; i < n; ++i) out[i] = f(a[i]...);
    });
  };
  loop(in.data()...);
  return result;
}

/// `f(x)` from the middle of a vector, at the level in force.
template <class F, class T>
T value(F f, T x) {
  return apply<T>(f, std::vector<T>(67, x))[35];
}

/// The distance of `got` from the exact result, in units of the last place of a T there.
template <class T>
double ulps(T got, long double exact) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(exact) || std::isnan(got)) return std::isnan(exact) == std::isnan(got) ? 0 : 1e9;
  const T rounded = static_cast<T>(exact);
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : 1e9;
  int exponent = Limits::min_exponent;
  if (exact != 0) std::frexp(exact, &exponent);
  exponent = std::max(exponent, Limits::min_exponent);
  return static_cast<double>(std::fabs(std::ldexp(got - exact, Limits::digits - exponent)));
}

}  // namespace espalier::testing
