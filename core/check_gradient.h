// check_gradient: does a gradient agree with what small changes of the inputs do?
#pragma once
#include <functional>
#include <source_location>
#include <string>
#include <vector>

#include "espalier/core/variable.h"

namespace espalier {

struct CheckGradientOptions {
  int order = 1;            ///< 2 checks second derivatives as well
  double step = 1e-5;       ///< of the central differences, times |x| where that is more than 1
  double tolerance = 1e-6;  ///< for the difference of two numbers, relative to 1 + the larger of them
};

struct CheckResult {
  bool passed = true;
  double max_error = 0;  ///< the largest difference met, measured as the tolerance is
  /// The largest difference that is not tolerated: which derivative, input and element, and both numbers.
  std::string message;
};

/// Compares `gradient` with central differences in double precision, element by element.
/// The function differentiated is g, the sum of f's elements, each times a fixed number, and the difference
/// (g(x + h) − g(x − h)) / 2h. For the second order g is the sum of all first derivatives, weighted as well.
/// `f` must give the same for the same inputs, and be smooth within a step of them; it may ignore some.
/// Takes none of the caller's random numbers. Throws TypeError unless inputs and output are float64, and what
/// `f` throws.
CheckResult check_gradient(const std::function<Variable(const std::vector<Variable>&)>& f,
                           const std::vector<Tensor>& inputs, CheckGradientOptions options = {},
                           std::source_location where = std::source_location::current());

}  // namespace espalier
