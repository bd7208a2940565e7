// Comparisons with a tolerance.
#pragma once
#include "espalier/core/variable.h"

namespace espalier {

struct CloseOptions {
  double relative = 1e-5;  ///< tolerance as a fraction of |b|
  double absolute = 1e-8;  ///< tolerance added to that
  bool equal_nan = false;  ///< NaNs are close to each other
};
/// |a − b| ≤ absolute + relative · |b| where both are finite, and a = b elsewhere: bool. For reals. NumPy's
/// isclose. Throws Error for a negative tolerance.
Variable isclose(const Operand& a, const Operand& b, const CloseOptions& options = {});
/// Whether all elements are close: a bool scalar.
Variable allclose(const Operand& a, const Operand& b, const CloseOptions& options = {});

}  // namespace espalier
