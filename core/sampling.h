// Random numbers of further distributions: functions of (seed, stream, number of the element), for the CPU
// and for CUDA. All is computed in double; devices differ in the last bits of logarithms.
#pragma once
#include "espalier/core/philox.h"
#include "espalier/core/scalar.h"

namespace espalier::sampling {

/// The number in its stream of an element: with `run` > 0, runs of `run` numbers begin `stride` apart.
ESPALIER_HD long long number_of(long long element, long long first, long long run, long long stride) {
  return run == 0 ? first + element : first + element / run * stride + element % run;
}

/// The words of one element, as many as it asks for: those of the blocks number, number + 2^44, …
class ElementWords {
 public:
  ESPALIER_HD ElementWords(unsigned long long seed, unsigned long long stream, unsigned long long number)
      : seed_(seed), stream_(stream), index_(number) {}
  /// With the words of the first block.
  ESPALIER_HD ElementWords(unsigned long long seed, unsigned long long stream, unsigned long long number,
                           const unsigned int* first)
      : seed_(seed),
        stream_(stream),
        index_(number + (1ull << 44)),
        block_{{first[0], first[1], first[2], first[3]}},
        used_(0) {}

  ESPALIER_HD unsigned int next() {
    if (used_ == 4) {
      block_ = philox::block(seed_, stream_, index_);
      index_ += 1ull << 44;
      used_ = 0;
    }
    return block_.word[used_++];
  }
  /// In [0, 1), with 53 bits.
  ESPALIER_HD double uniform() {
    const unsigned int first = next();
    return philox::uniform_double(first, next());
  }
  /// In (0, 1].
  ESPALIER_HD double positive() { return uniform() + 0x1p-53; }
  /// Standard normal, by Box and Muller's formula.
  ESPALIER_HD double normal() {
    const double radius = scalar::detail::sqrt(-2.0 * scalar::detail::log(positive()));
    return radius * scalar::detail::cos(6.283185307179586477 * uniform());
  }

 private:
  unsigned long long seed_, stream_, index_;
  philox::Block block_ = {};
  int used_ = 4;
};

/// log(k!) for an integer k >= 0, by Stirling's series from 10 on.
ESPALIER_HD double log_factorial(double k) {
  if (k < 10) {
    double product = 1;
    for (int i = 2; i <= static_cast<int>(k); ++i) product *= i;
    return scalar::detail::log(product);
  }
  const double x = k + 1, r = 1 / x, s = r * r;
  return (x - 0.5) * scalar::detail::log(x) - x + 0.91893853320467274178 +
         r * (1.0 / 12 - s * (1.0 / 360 - s * (1.0 / 1260 - s / 1680)));
}

/// Poisson's distribution with that mean, which is finite and not negative.
struct Poisson {
  static ESPALIER_HD bool accepts(double mean) { return mean >= 0 && mean < 0x1p62; }

  ESPALIER_HD double operator()(double mean, ElementWords& words) const {
    return mean < 10 ? by_inversion(mean, words) : by_rejection(mean, words);
  }

 private:
  static ESPALIER_HD double by_inversion(double mean, ElementWords& words) {
    const double u = words.uniform();
    double k = 0, probability = scalar::detail::exp(-mean), sum = probability;
    while (u >= sum && k < 200) {
      k += 1;
      probability *= mean / k;
      sum += probability;
    }
    return k;
  }
  /// Hörmann, "The transformed rejection method for generating Poisson random variables" (1993): PTRS.
  static ESPALIER_HD double by_rejection(double mean, ElementWords& words) {
    const double b = 0.931 + 2.53 * scalar::detail::sqrt(mean), a = -0.059 + 0.02483 * b;
    const double inverse_alpha = 1.1239 + 1.1328 / (b - 3.4), accepted = 0.9277 - 3.6224 / (b - 2);
    const double log_mean = scalar::detail::log(mean);
    for (;;) {
      const double u = words.uniform() - 0.5, v = words.positive();
      const double distance = 0.5 - scalar::detail::fabs(u);
      if (distance == 0) continue;
      const double k = scalar::detail::floor((2 * a / distance + b) * u + mean + 0.43);
      if (distance >= 0.07 && v <= accepted) return k;
      if (k < 0 || (distance < 0.013 && v > distance)) continue;
      const double left = scalar::detail::log(v * inverse_alpha / (a / (distance * distance) + b));
      if (left <= k * log_mean - mean - log_factorial(k)) return k;
    }
  }
};

/// The gamma distribution of scale 1 with that shape, which is finite and positive. Marsaglia and Tsang, "A
/// simple method for generating gamma variables" (2000).
struct Gamma {
  static ESPALIER_HD bool accepts(double shape) { return shape > 0 && shape < 0x1p1000; }

  ESPALIER_HD double operator()(double shape, ElementWords& words) const {
    double factor = 1;
    if (shape < 1) {
      factor = scalar::detail::pow(words.positive(), 1 / shape);
      shape += 1;
    }
    const double d = shape - 1.0 / 3, c = 1 / scalar::detail::sqrt(9 * d);
    for (;;) {
      const double x = words.normal(), root = 1 + c * x;
      if (!(root > 0)) continue;
      const double v = root * root * root;
      if (scalar::detail::log(words.positive()) < 0.5 * x * x + d - d * v + d * scalar::detail::log(v))
        return factor * d * v;
    }
  }
};

/// A polynomial of degree 7, by Horner's rule from the highest coefficient on.
ESPALIER_HD double degree7(double x, const double (&c)[8]) {
  double y = c[7];
  for (int i = 6; i >= 0; --i) y = y * x + c[i];
  return y;
}

/// The x at which the standard normal distribution function is p, 0 < p < 1. Wichura, "Algorithm AS 241"
/// (1988): 16 digits.
ESPALIER_HD double normal_quantile(double p) {
  const double q = p - 0.5;
  if (scalar::detail::fabs(q) <= 0.425) {
    const double a[8] = {3.3871328727963666080e0,  1.3314166789178437745e+2, 1.9715909503065514427e+3,
                         1.3731693765509461125e+4, 4.5921953931549871457e+4, 6.7265770927008700853e+4,
                         3.3430575583588128105e+4, 2.5090809287301226727e+3};
    const double b[8] = {1.0,
                         4.2313330701600911252e+1,
                         6.8718700749205790830e+2,
                         5.3941960214247511077e+3,
                         2.1213794301586595867e+4,
                         3.9307895800092710610e+4,
                         2.8729085735721942674e+4,
                         5.2264952788528545610e+3};
    const double r = 0.180625 - q * q;
    return q * degree7(r, a) / degree7(r, b);
  }
  double r = scalar::detail::sqrt(-scalar::detail::log(q < 0 ? p : 1 - p)), x;
  if (r <= 5) {
    const double c[8] = {1.42343711074968357734e0,  4.63033784615654529590e0, 5.76949722146069140550e0,
                         3.64784832476320460504e0,  1.27045825245236838258e0, 2.41780725177450611770e-1,
                         2.27238449892691845833e-2, 7.74545014278341407640e-4};
    const double d[8] = {1.0,
                         2.05319162663775882187e0,
                         1.67638483018380384940e0,
                         6.89767334985100004550e-1,
                         1.48103976427480074590e-1,
                         1.51986665636164571966e-2,
                         5.47593808499534494600e-4,
                         1.05075007164441684324e-9};
    r -= 1.6;
    x = degree7(r, c) / degree7(r, d);
  } else {
    const double e[8] = {6.65790464350110377720e0,  5.46378491116411436990e0,  1.78482653991729133580e0,
                         2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                         2.71155556874348757815e-5, 2.01033439929228813265e-7};
    const double f[8] = {1.0,
                         5.99832206555887937690e-1,
                         1.36929880922735805310e-1,
                         1.48753612908506148525e-2,
                         7.86869131145613259100e-4,
                         1.84631831751005468180e-5,
                         1.42151175831644588870e-7,
                         2.04426310338993978564e-15};
    r -= 5;
    x = degree7(r, e) / degree7(r, f);
  }
  return q < 0 ? -x : x;
}

/// Standard normal numbers in [low, high], by the inverse of the distribution function. `below` and `width`
/// are the probability below `low` and that of the interval; an interval above 0 is `mirrored`, where small
/// probabilities keep their digits.
struct TruncatedNormal {
  double low, high, below, width;
  bool mirrored;

  ESPALIER_HD double operator()(ElementWords& words) const {
    const double x = normal_quantile(below + width * words.positive());
    const double inside = x < low ? low : x > high ? high : x;
    return mirrored ? -inside : inside;
  }
};

/// Integers in [low, low + range), from 64 random bits: likelihoods differ by less than 2^-64 · range.
struct UniformInteger {
  long long low;
  unsigned long long range;

  ESPALIER_HD long long operator()(ElementWords& words) const {
    const unsigned long long first = words.next(), second = words.next();
    // The high half of (second · 2^32 + first) · range, in 32-bit parts.
    const unsigned long long lower = range & 0xFFFFFFFFull, upper = range >> 32;
    const unsigned long long carried = (first * lower >> 32) + (second * lower & 0xFFFFFFFFull);
    const unsigned long long middle = carried + (first * upper & 0xFFFFFFFFull);
    const unsigned long long below =
        second * upper + (second * lower >> 32) + (first * upper >> 32) + (middle >> 32);
    return static_cast<long long>(static_cast<unsigned long long>(low) + below);
  }
};

}  // namespace espalier::sampling
