// The numbers of the recursions of CTC, for kernels of any device: logarithms of probabilities, alone or with
// their derivative in one direction.
#pragma once
#include <limits>

#include "espalier/core/scalar.h"

namespace espalier::ctc {

struct Dual {
  double value, slope;
};

template <class N>
inline constexpr bool has_slope = false;
template <>
inline constexpr bool has_slope<Dual> = true;

/// log 0.
template <class N>
ESPALIER_HD N nothing() {
  if constexpr (has_slope<N>)
    return {-std::numeric_limits<double>::infinity(), 0};
  else
    return -std::numeric_limits<double>::infinity();
}
template <class N>
ESPALIER_HD N certain() {
  if constexpr (has_slope<N>)
    return {0, 0};
  else
    return 0;
}

ESPALIER_HD double value_of(double a) { return a; }
ESPALIER_HD double value_of(Dual a) { return a.value; }
ESPALIER_HD double times(double a, double b) { return a + b; }
ESPALIER_HD Dual times(Dual a, Dual b) { return {a.value + b.value, a.slope + b.slope}; }
/// a / total as a probability; of a Dual the derivative of it.
ESPALIER_HD double share(double a, double total) { return scalar::Exp()(a - total); }
ESPALIER_HD double share(Dual a, Dual total) {
  return scalar::Exp()(a.value - total.value) * (a.slope - total.slope);
}

/// The sum of three, of which the last counts if `third` is 0 and not if it is −∞.
ESPALIER_HD double sum_of(double a, double b, double c, double third) {
  c += third;
  const double largest = scalar::Maximum()(scalar::Maximum()(a, b), c);
  const double shift = largest == -std::numeric_limits<double>::infinity() ? 0 : largest;
  const scalar::Exp exp;
  return shift + scalar::Log()(exp(a - shift) + exp(b - shift) + exp(c - shift));
}
ESPALIER_HD Dual sum_of(Dual a, Dual b, Dual c, double third) {
  c.value += third;
  const double largest = scalar::Maximum()(scalar::Maximum()(a.value, b.value), c.value);
  const double shift = largest == -std::numeric_limits<double>::infinity() ? 0 : largest;
  const scalar::Exp exp;
  const double x = exp(a.value - shift), y = exp(b.value - shift), z = exp(c.value - shift);
  const double total = x + y + z;
  return {shift + scalar::Log()(total), total > 0 ? (x * a.slope + y * b.slope + z * c.slope) / total : 0};
}

}  // namespace espalier::ctc
