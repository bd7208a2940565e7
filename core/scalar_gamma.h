// The gamma function's logarithm and its derivative for positive floats, on the CPU: computed in double as
// the functions of scalar_wide.h are. Below 3 they are polynomials around 2, to which Γ(x + 1) = x Γ(x)
// leads; above, their asymptotic series (Abramowitz and Stegun, Handbook of mathematical functions, 6.1.40
// and 6.3.18) with fitted coefficients. The fits' errors are below 2^-30.
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

}  // namespace espalier::math
