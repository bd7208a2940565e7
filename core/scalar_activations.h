// Functors of pointwise ops: activations and their slopes. What scalar.h says of its text holds here, too.
#pragma once

#ifndef __CUDACC_RTC__
#include "espalier/core/scalar_functions.h"
#endif

namespace espalier::scalar {

namespace detail {

// The share of the standard normal distribution below x, and its density.
#ifdef __CUDA_ARCH__
using ::normcdf;
#else
ESPALIER_HD double normcdf(double x) { return 0.5 * erfc(x * -0.70710678118654752440); }
#endif
template <class T>
ESPALIER_HD T normal_density(T x) {
  return T(0.39894228040143267794) * exp(T(-0.5) * x * x);
}

/// x share, and 0 where the share is 0, since x may be infinite.
template <class T>
ESPALIER_HD T share_of(T x, T share) {
  return share == T(0) ? T(0) : x * share;
}

template <class T>
ESPALIER_HD T gelu(T x) {
  return share_of(x, normcdf(x));
}
template <class T>
ESPALIER_HD T gelu_slope(T x) {
  return normcdf(x) + share_of(x, normal_density(x));
}
#ifndef __CUDA_ARCH__
ESPALIER_HD float gelu(float x) { return math::gelu(x); }
ESPALIER_HD float gelu_slope(float x) { return math::gelu_slope(x); }
#endif

}  // namespace detail

/// x times the share of the standard normal distribution below x.
struct Gelu : Costly {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return detail::gelu(x);
  }
};
/// g times the slope of Gelu at x.
struct GeluGradient : Costly {
  template <class T>
  ESPALIER_HD T operator()(T g, T x) const {
    return g * detail::gelu_slope(x);
  }
};

namespace detail {
/// Gelu with tanh in place of the normal distribution: x (1 + tanh u) / 2 = x sigmoid(2 u).
template <class T>
ESPALIER_HD T twice_gelu_angle(T x) {
  return T(1.59576912160573071176) * (x + T(0.044715) * (x * x * x));
}
struct GeluTanhFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x) {
    return share_of(x, M::sigmoid(twice_gelu_angle(x)));
  }
};
struct GeluTanhSlopeFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x) {
    const T share = M::sigmoid(twice_gelu_angle(x)), spread = share * (T(1) - share);
    const T angle = T(1.59576912160573071176) * (T(1) + T(3 * 0.044715) * (x * x));
    return spread == T(0) ? share : share + x * spread * angle;
  }
};
struct SiluFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x) {
    return share_of(x, M::sigmoid(x));
  }
};
struct SiluSlopeFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x) {
    const T share = M::sigmoid(x), rest = T(1) - share;
    return share_of(T(1) + share_of(x, rest), share);
  }
};
/// tanh(log(1 + e)) = n / (n + 2) with n = e (e + 2), e = exp(x): above 40 that rounds to 1.
struct MishFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x) {
    const T e = M::exp(x > T(40) ? T(40) : x), n = e * (e + T(2));
    return share_of(x, n / (n + T(2)));
  }
};
struct MishSlopeFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x) {
    const T inside = x > T(40) ? T(40) : x;
    const T e = M::exp(inside), n = e * (e + T(2)), inverse = T(1) / (n + T(2));
    return n * inverse + share_of(inside, T(4) * (e * inverse) * ((e + T(1)) * inverse));
  }
};
struct SoftplusFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x, T beta) {
    const T steep = x * beta, positive = steep < T(0) ? T(0) : steep;
    return (positive + M::log1p_exp_minus(fabs(steep))) / beta;
  }
};
struct LogSigmoidFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x) {
    return (x > T(0) ? T(0) : x) - M::log1p_exp_minus(fabs(x));
  }
};
struct EluFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x, T alpha) {
    return x > T(0) ? x : alpha * M::expm1(x);
  }
};
struct EluSlopeFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x, T alpha) {
    return x > T(0) ? T(1) : alpha * M::exp(x);
  }
};
struct CeluFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x, T alpha) {
    return x > T(0) ? x : alpha * M::expm1(x / alpha);
  }
};
struct CeluSlopeFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x, T alpha) {
    return x > T(0) ? T(1) : M::exp(x / alpha);
  }
};
struct SeluFormula {
  static constexpr double scale = 1.0507009873554804934, alpha = 1.6732632423543772848;
  template <class M, class T>
  ESPALIER_HD static T of(T x) {
    return x > T(0) ? T(scale) * x : T(scale * alpha) * M::expm1(x);
  }
};
struct SeluSlopeFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x) {
    return x > T(0) ? T(SeluFormula::scale) : T(SeluFormula::scale * SeluFormula::alpha) * M::exp(x);
  }
};
/// Near 0 by the fit of math::tanh(double), of which x is left out.
struct TanhShrinkFormula {
  template <class M, class T>
  ESPALIER_HD static T of(T x) {
    const T z = x * x;
    const T p = (T(0.00019908867043639004) * z + T(0.020496780701307747)) * z + T(0.33333333333333326);
    const T q =
        ((T(0.0002064380260642737) * z + T(0.023288640948369813)) * z + T(0.46149034210390816)) * z + T(1);
    return fabs(x) < T(0.625) ? x * z * (p / q) : x - tanh(x);
  }
};
}  // namespace detail

/// A functor of a formula.
template <class Formula>
struct Evaluated : Costly {
  template <class T, class... P>
  ESPALIER_HD T operator()(T x, P... parameters) const {
    return detail::evaluate<Formula>(x, parameters...);
  }
};
struct GeluTanh : Evaluated<detail::GeluTanhFormula> {};
struct GeluTanhSlope : Evaluated<detail::GeluTanhSlopeFormula> {};
struct Silu : Evaluated<detail::SiluFormula> {};
struct SiluSlope : Evaluated<detail::SiluSlopeFormula> {};
/// x tanh(log(1 + exp(x))).
struct Mish : Evaluated<detail::MishFormula> {};
struct MishSlope : Evaluated<detail::MishSlopeFormula> {};
/// log(1 + exp(beta x)) / beta.
struct Softplus : Evaluated<detail::SoftplusFormula> {};
struct LogSigmoid : Evaluated<detail::LogSigmoidFormula> {};
struct Elu : Evaluated<detail::EluFormula> {};
struct EluSlope : Evaluated<detail::EluSlopeFormula> {};
struct Celu : Evaluated<detail::CeluFormula> {};
struct CeluSlope : Evaluated<detail::CeluSlopeFormula> {};
struct Selu : Evaluated<detail::SeluFormula> {};
struct SeluSlope : Evaluated<detail::SeluSlopeFormula> {};
/// x - tanh(x).
struct TanhShrink : Evaluated<detail::TanhShrinkFormula> {};

struct LeakyRelu {
  template <class T>
  ESPALIER_HD T operator()(T x, T slope) const {
    return x > T(0) ? x : x * slope;
  }
};
struct HardSigmoid {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    const T above = x < T(-3) ? T(-3) : x;
    return ((above > T(3) ? T(3) : above) + T(3)) / T(6);
  }
};
struct HardSwish {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    const T above = x <= T(-3) ? T(0) : x * ((x + T(3)) / T(6));
    return x >= T(3) ? x : above;
  }
};
struct SoftSign {
  template <class T>
  ESPALIER_HD T operator()(T x) const {
    return x / (T(1) + detail::fabs(x));
  }
};
struct SoftShrink {
  template <class T>
  ESPALIER_HD T operator()(T x, T lambda) const {
    const T below = x < -lambda ? x + lambda : x * T(0);
    return x > lambda ? x - lambda : below;
  }
};
struct HardShrink {
  template <class T>
  ESPALIER_HD T operator()(T x, T lambda) const {
    return ((x >= -lambda) & (x <= lambda)) ? T(0) : x;
  }
};

using Activations = Functors<Gelu, GeluTanh, GeluTanhSlope, Silu, SiluSlope, Mish, MishSlope, LogSigmoid,
                             Selu, SeluSlope, TanhShrink, HardSigmoid, HardSwish, SoftSign>;

}  // namespace espalier::scalar
