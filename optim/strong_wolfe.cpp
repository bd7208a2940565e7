#include "espalier/optim/strong_wolfe.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

namespace espalier::optim {

double cubic_minimum(const LinePoint& a, const LinePoint& b, double low, double high) {
  const double d1 = a.slope + b.slope - 3 * (a.value - b.value) / (a.t - b.t);
  const double square = d1 * d1 - a.slope * b.slope;
  if (!(square >= 0)) return (low + high) / 2;
  const double d2 = std::sqrt(square);
  const auto& [left, right] = a.t <= b.t ? std::tie(a, b) : std::tie(b, a);
  const double t =
      right.t - (right.t - left.t) * ((right.slope + d2 - d1) / (right.slope - left.slope + 2 * d2));
  return std::isfinite(t) ? std::min(std::max(t, low), high) : (low + high) / 2;
}

namespace {

/// The interval that contains a step to be found: the end with the lower value, and the other one.
struct Bracket {
  LinePoint ends[2];
  int lower = 0;
  bool was_near_end = false;

  Bracket(const LinePoint& a, const LinePoint& b) : ends{a, b} { order(); }
  LinePoint& low() { return ends[lower]; }
  LinePoint& high() { return ends[1 - lower]; }
  void order() { lower = ends[0].value <= ends[1].value ? 0 : 1; }
  double left() const { return std::min(ends[0].t, ends[1].t); }
  double right() const { return std::max(ends[0].t, ends[1].t); }

  /// The next step to try. One that is near an end for the second time in a row is moved away from it.
  double trial() {
    const double t = cubic_minimum(ends[0], ends[1], left(), right());
    const double margin = 0.1 * (right() - left());
    const bool near_end = std::min(right() - t, t - left()) < margin;
    const bool moves = near_end && (was_near_end || t >= right() || t <= left());
    was_near_end = near_end && !moves;
    if (!moves) return t;
    return std::abs(t - right()) < std::abs(t - left()) ? right() - margin : left() + margin;
  }
};

}  // namespace

LinePoint strong_wolfe(const std::function<LinePoint(double t)>& evaluate_at, const LinePoint& start,
                       double t, double largest, const WolfeOptions& o) {
  // A step to where the function is not finite is too long.
  const auto evaluate = [&](double length) {
    LinePoint point = evaluate_at(length);
    if (!std::isfinite(point.value) || !std::isfinite(point.slope))
      point.value = std::numeric_limits<double>::infinity();
    return point;
  };
  const auto too_high = [&](const LinePoint& p) {
    return p.value > start.value + o.decrease * p.t * start.slope;
  };
  const auto flat = [&](const LinePoint& p) { return std::abs(p.slope) <= -o.curvature * start.slope; };

  // A bracket: steps grow until one fulfils the conditions, or is behind one that does.
  LinePoint before = start, now = evaluate(t);
  int count = 0;
  for (; count < o.most; ++count) {
    if (too_high(now) || (count > 1 && now.value >= before.value)) break;
    if (flat(now)) return now;
    if (now.slope >= 0) break;
    const double next = cubic_minimum(before, now, now.t + 0.01 * (now.t - before.t), now.t * 10);
    before = std::exchange(now, evaluate(next));
  }
  Bracket bracket(count == o.most ? start : before, now);

  for (; count < o.most; ++count) {
    if ((bracket.right() - bracket.left()) * largest < o.tolerance) break;
    const LinePoint point = evaluate(bracket.trial());
    if (too_high(point) || point.value >= bracket.low().value) {
      bracket.high() = point;
      bracket.order();
      continue;
    }
    if (flat(point)) return point;
    if (point.slope * (bracket.high().t - bracket.low().t) >= 0) bracket.high() = bracket.low();
    bracket.low() = point;
  }
  return bracket.low();
}

}  // namespace espalier::optim
