// A line search for steps that fulfil the strong Wolfe conditions.
#pragma once
#include <functional>

namespace espalier::optim {

/// A point of a line: the step t from its beginning, the value there, and the slope along the line.
struct LinePoint {
  double t = 0;
  double value = 0;
  double slope = 0;
};

struct WolfeOptions {
  double decrease = 1e-4;   ///< c₁: value(t) ≤ value(0) + c₁ · t · slope(0)
  double curvature = 0.9;   ///< c₂: |slope(t)| ≤ c₂ · |slope(0)|
  double tolerance = 1e-9;  ///< the smallest length of an interval, as a change of one element
  int most = 25;            ///< evaluations after the first
};

/// The minimum of the cubic through two points with their slopes, within these bounds; their middle if it has
/// none.
double cubic_minimum(const LinePoint& a, const LinePoint& b, double low, double high);

/// Looks for a step that fulfils the strong Wolfe conditions (Nocedal and Wright, Numerical optimization,
/// 2006, algorithms 3.5 and 3.6, in PyTorch's form), from `start` at t = 0 on; `t` is the first to be tried
/// and `largest` the largest element of the direction. Returns the best point that `evaluate` has returned,
/// or `start`.
LinePoint strong_wolfe(const std::function<LinePoint(double t)>& evaluate, const LinePoint& start, double t,
                       double largest, const WolfeOptions& options = {});

}  // namespace espalier::optim
