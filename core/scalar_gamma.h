// The gamma function's logarithm and its first derivatives for positive floats, on the CPU: computed in
// double as the functions of scalar_wide.h are. Below 3 they are polynomials around 2, to which Γ(x + 1) = x
// Γ(x) leads; above, their asymptotic series (Abramowitz and Stegun, Handbook of mathematical
// functions, 6.1.40, 6.3.18, 6.4.12 and 6.4.13) with fitted coefficients. The fits' errors are below 2^-30.
#pragma once
#include "espalier/core/scalar_power.h"

namespace espalier::math {

/// log Γ(x) for finite x > 0. The polynomial is that of log Γ(t + 2) / (t (t + 1)), so that zeros are exact,
/// and subtracting -0 makes them positive.
[[gnu::always_inline]] inline float lgamma_of_positive(float x) {
  const double wide = x, log_x = precise_log(wide), inverse = 1.0 / wide;
  const double t = (wide < 1.0 ? wide + 1.0 : wide) - 2.0;
  const double fit = polynomial(
      t, 0.42278433506504502, -0.10031730165840978, 0.032965004891564562, -0.012384194230569828,
      0.0049985523000045135, -0.0021080884426724371, 0.00091607536529108026, -0.00040604055229271232,
      0.0001798884008053009, -8.1824451191998674e-5, 4.3584988032127067e-5, -2.0244296438057545e-5,
      2.3377832871042997e-6, -1.0423813294330275e-6, 4.8487533968048042e-6, -2.301277182486616e-6);
  const double inner = t * (t + 1.0) * fit - (wide < 1.0 ? log_x : -0.0);
  const double series =
      inverse * polynomial(inverse * inverse, 0.083333333302401826, -0.0027777637763285706,
                           0.00079261127919281107, -0.00056718139863679191, 0.00050453184981697863);
  const double outer = (wide - 0.5) * log_x - wide + (0.91893853320467274178 + series);
  return static_cast<float>(wide < 3.0 ? inner : outer);
}

/// ψ(x) for finite x > 0. The polynomial is that of ψ(t + 2) / (t + 2 - z), where z is the zero of ψ.
[[gnu::always_inline]] inline float digamma_of_positive(float x) {
  const double wide = x, log_x = precise_log(wide), inverse = 1.0 / wide;
  const double t = (wide < 1.0 ? wide + 1.0 : wide) - 2.0;
  const double fit =
      polynomial(t, 0.78530753860410527, -0.26073895248215001, 0.10899991591727731, -0.04955113800838939,
                 0.023447362139350706, -0.011336979850831708, 0.0055515278745373955, -0.0027485061475388561,
                 0.0013626084403997228, -0.00064655840434913495, 0.00032205658348511245,
                 -0.0002192230962289079, 0.00010947766125439698, 8.4082071540872827e-6,
                 -4.2166089122665091e-6, -3.3946299277535668e-5, 1.6970551385722775e-5);
  const double inner = (t + 0.5383678550316376587) * fit - (wide < 1.0 ? inverse : 0.0);
  const double square = inverse * inverse;
  const double series =
      square * polynomial(square, 0.083333333028984272, -0.0083331954284764471, 0.0039579624966717803,
                          -0.0038856692788506309, 0.0041093706974306233);
  return static_cast<float>(wide < 3.0 ? inner : log_x - (0.5 * inverse + series));
}

/// ψ'(x) for finite x > 0. The polynomial is that of ψ'(t + 2).
[[gnu::always_inline]] inline float trigamma_of_positive(float x) {
  const double wide = x, inverse = 1.0 / wide, square = inverse * inverse;
  const double t = (wide < 1.0 ? wide + 1.0 : wide) - 2.0;
  const double fit =
      polynomial(t, 0.6449340668482264, -0.4041138092795037, 0.24696970267805302, -0.14771084375913893,
                 0.08671521766234708, -0.05009874232762792, 0.028543099531999187, -0.016042970510066885,
                 0.008938562153744323, -0.005043686236647629, 0.0027600806728727296, -0.0012243849107523809,
                 0.0006666868352131248, -0.0007851304650350239, 0.00041556219161399693, 0.0001687139858915836,
                 -8.704139769447157e-05, -0.00014914628334343916, 7.812956043779845e-05);
  const double series = polynomial(square, 0.16666666341595765, -0.03333185879817881, 0.023698873678267656,
                                   -0.03027455588317143, 0.036964148643865664);
  return static_cast<float>(wide < 3.0 ? fit + (wide < 1.0 ? square : 0.0)
                                       : inverse + square * (0.5 + inverse * series));
}

/// ψ''(x) for finite x > 0. The polynomial is that of -ψ''(t + 2).
[[gnu::always_inline]] inline float tetragamma_of_positive(float x) {
  const double wide = x, inverse = 1.0 / wide, square = inverse * inverse;
  const double t = (wide < 1.0 ? wide + 1.0 : wide) - 2.0;
  const double fit =
      polynomial(t, 0.4041138063670095, -0.4939394022925297, 0.4431330501615582, -0.34686123347681935,
                 0.25047878103369986, -0.17124920731371684, 0.112462909341805, -0.07160559904205004,
                 0.04453270229724916, -0.027099476096458578, 0.015944626729751128, -0.009418410669294415,
                 0.006278250943655175, -0.0035916713517281287, 0.0005728778671885454, -0.00036062633582152127,
                 0.001978538799354654, -0.001076590774598892, -0.000726112412366873, 0.000388324680241644,
                 0.00034437512320512753, -0.0001861072912397339);
  const double series = polynomial(square, 0.499999996598629, -0.16666444543249564, 0.16642401948710314,
                                   -0.2898760751514328, 0.6264359203148586, -0.937479730182269);
  return static_cast<float>(wide < 3.0 ? -fit - (wide < 1.0 ? 2.0 * (square * inverse) : 0.0)
                                       : -square * (1.0 + inverse + square * series));
}

}  // namespace espalier::math
